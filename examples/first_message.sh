#!/usr/bin/env bash
# The first message: make a topic and a group, send, receive, acknowledge. Needs curl and a running Headrace.
#   HEADRACE_URL (http://127.0.0.1:8700; HEADRACE_PORT names another port), HEADRACE_TOKEN (else what .data/token holds)
set -euo pipefail

url=${HEADRACE_URL:-http://127.0.0.1:${HEADRACE_PORT:-8700}}
topic=first-$$
if [ -z "${HEADRACE_TOKEN:-}" ]; then
  [ -r .data/token ] || { echo "Set HEADRACE_TOKEN, or run this where .data/token is (make run makes it)." >&2; exit 2; }
  HEADRACE_TOKEN=$(<.data/token)
fi

call() { # method, path, body
  printf '\n%s %s %s\n' "$1" "$2" "$3" >&2
  curl --silent --show-error --fail-with-body -X "$1" "$url$2" -d "$3" \
    -H "Authorization: Bearer $HEADRACE_TOKEN" -H 'Content-Type: application/json'
}

call PUT "/v1/topics/$topic" '{}'
call PUT "/v1/topics/$topic/groups/billing" '{"from": "earliest"}'
call POST "/v1/topics/$topic/messages" '{"body": {"order": 188, "total": 19.9}, "keys": ["order-188"], "tag": "paid"}'

got=$(call POST "/v1/topics/$topic/groups/billing/receive" '{"max": 1, "wait_seconds": 5}')
echo "$got"
receipt=$(sed -n 's/.*"receipt":"\([^"]*\)".*/\1/p' <<<"$got")
[ -n "$receipt" ] || { echo "No message came." >&2; exit 1; }

call POST "/v1/topics/$topic/groups/billing/ack" "{\"receipts\": [\"$receipt\"]}"
printf '\n\nAcknowledged: the group billing is done with this message.\n'
call DELETE "/v1/topics/$topic?confirm=$topic" '{}'
