"""The console's pages, by name, with what stands in their paths."""

from __future__ import annotations


def paths(message_id: str) -> dict[str, str]:
    """The path of each page of the scene."""
    orders = "console/topics/orders"
    return {
        "overview": "console",
        "topic": orders,
        "rates": f"{orders}/rates",
        "messages": f"{orders}/messages",
        "message": f"{orders}/messages/{message_id}",
        "fate": f"{orders}/messages/{message_id}/fate",
        "group": f"{orders}/groups/mailer",
        "subscriber": "console/topics/returns/groups/desk/consumers/shop",
        "dead-letters": f"{orders}/groups/mailer/dead-letters",
        "many-letters": f"{orders}/groups/mailer/dead-letters/many",
        "redrive": f"{orders}/groups/mailer/many?call=redrive&error=SMTP",
        "delete": f"{orders}/groups/mailer/many?call=delete_dead_letters",
        "retry": f"{orders}/groups/mailer/many?call=retry_many",
        "purge": f"{orders}/groups/mailer/many?call=purge_group",
        "purge-topic": f"{orders}/many?call=purge_topic",
        "recheck": f"{orders}/many?call=recheck",
        "group-settings": f"{orders}/groups/mailer/settings?to=earliest",
        "settings": f"{orders}/settings",
        "send": f"{orders}/send",
        "tail": f"{orders}/tail",
        "transactions": f"{orders}/transactions",
        "later": "console/topics/invoices/later",
        "many-later": "console/topics/invoices/later/many",
        "find": "console/find?q=order-7",
        "try": "console/try",
        "tokens": "console/tokens",
        "archive": "console/archive",
        "replays": f"{orders}/replays?from=2026-11-01T00:00&to=2026-11-02T00:00",
        "audit": "console/audit?topic=orders",
        "system": "console/system",
    }
