"""Pages for people, under `/console`: see the queue, and put a hand in.

Pages are whole HTML and need no script. A page's handler (`routes`) asks the services, a view (`views`, pure) makes of
their results what a template shows. Only what a person does is a call of the HTTP interface (`deeds`), checked as any
is; reading is not, so a filter or a field that the interface gets is not on a page by itself.
Nothing here is imported before somebody opens a page, but for the list of paths.
"""
