#!/usr/bin/env python3
"""A bank transfer: money leaves an account in SQLite and a message reports it to another bank. Both happen, or neither,
even if a process dies in between.

Each transfer is a transaction of Headrace around one of SQLite:

  1. prepare the message: it is stored, but not delivered
  2. move the money, and note the transaction's id, in one SQLite transaction
  3. commit the message (or roll it back, where the account did not have the money)

If this process dies in between, the message stays undecided. So Headrace asks, at the check URL that step 1 named; this
program answers by what its database holds. Try it: let it stop with the money moved and the message not committed, kill
it, and start it again:

  bank_transfer.py --stop-at paid       (then kill -9 it)
  bank_transfer.py --transfers 0

Needs a running Headrace (`make run`) and nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from headrace_client import Failed, Group, Headrace, add_options, find_token
from webhook_receiver import is_signed

OPENING_BALANCE = 100
PATIENCE_SECONDS = 120
TABLES = """
CREATE TABLE IF NOT EXISTS account (balance INTEGER NOT NULL CHECK (balance >= 0));
CREATE TABLE IF NOT EXISTS outcome (transaction_id TEXT PRIMARY KEY, state TEXT NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS received (message_id TEXT PRIMARY KEY, amount INTEGER NOT NULL);
"""


@dataclass(frozen=True)
class Bank:
    """Our bank's database, and what the other bank has received."""

    path: Path

    def open(self) -> None:
        with self.transaction() as db:
            for table in TABLES.strip().splitlines():
                db.execute(table)
            if not db.execute("SELECT 1 FROM account").fetchone():
                db.execute("INSERT INTO account VALUES (?)", (OPENING_BALANCE,))

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            yield db

    def pay(self, transaction_id: str, amount: int) -> bool:
        """Take the money and note for which transaction. False: there is not enough, or a check was answered with a
        rollback already."""
        try:
            with self.transaction() as db:
                db.execute("UPDATE account SET balance = balance - ?", (amount,))
                db.execute("INSERT INTO outcome VALUES (?, 'commit', ?)", (transaction_id, amount))
        except sqlite3.IntegrityError:
            return False
        return True

    def outcome(self, transaction_id: str) -> str:
        """What became of a transaction. One that is not noted never will be: from now on it is rolled back, however
        slow the one who was to note it may be."""
        with self.transaction() as db:
            db.execute("INSERT OR IGNORE INTO outcome VALUES (?, 'rollback', 0)", (transaction_id,))
            rows = db.execute("SELECT state FROM outcome WHERE transaction_id = ?", (transaction_id,))
            return str(rows.fetchone()[0])

    def receive(self, message: Mapping[str, Any]) -> None:
        """As the other bank does: once, however often the message comes."""
        with self.transaction() as db:
            row = (message["id"], message["body"]["amount"])
            db.execute("INSERT OR IGNORE INTO received VALUES (?, ?)", row)

    def sums(self) -> tuple[int, int, int]:
        """The balance, what was paid, what was received."""
        with self.transaction() as db:
            return tuple(
                db.execute(f"SELECT COALESCE(SUM({column}), 0) FROM {table}").fetchone()[0]
                for table, column in (("account", "balance"), ("outcome", "amount"), ("received", "amount"))
            )


def answer_checks(bank: Bank, port: int, secret: str) -> ThreadingHTTPServer:
    """Serve the check URL in the background. Raises Failed where the port is taken."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if not is_signed(secret, headers, body, time.time()):
                self.send_error(401)
                return
            transaction_id = json.loads(body)["transaction_id"]
            state = bank.outcome(transaction_id)
            print(f"Headrace asks about {transaction_id}: {state}", flush=True)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"state": state}).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Not each request."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise Failed(f"Port {port} cannot be used ({error.strerror}); give another with --port.") from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@dataclass(frozen=True)
class Transfers:
    """What is done with Headrace."""

    headrace: Headrace
    topic: str
    check: Mapping[str, Any]

    def prepare(self, body: Any) -> dict[str, Any]:
        request = {"message": {"body": body}, **self.check}
        transaction: dict[str, Any] = self.headrace.ask(
            "POST", f"/v1/topics/{self.topic}/transactions", request
        )
        return transaction

    def decide(self, transaction_id: str, decision: str) -> None:
        self.headrace.ask("POST", f"/v1/transactions/{transaction_id}/{decision}", {})

    def secret(self) -> str:
        """What checks are signed with. It comes with every prepared transaction; this one serves nothing else."""
        transaction = self.prepare("to learn the secret")
        self.decide(transaction["transaction_id"], "rollback")
        return str(transaction["check_secret"])

    def open(self) -> list[dict[str, Any]]:
        """The transactions that are still open."""
        transactions: list[dict[str, Any]] = self.headrace.ask(
            "GET", f"/v1/topics/{self.topic}/transactions"
        )["items"]
        return transactions


def transfer(transfers: Transfers, bank: Bank, amount: int, stop_at: str | None) -> None:
    transaction_id = transfers.prepare({"amount": amount})["transaction_id"]
    stop("prepared", stop_at)
    paid = bank.pay(transaction_id, amount)
    stop("paid", stop_at)
    transfers.decide(transaction_id, "commit" if paid else "rollback")
    print(f"transfer of {amount}: {'committed' if paid else 'rolled back, not enough money'}")


def stop(step: str, stop_at: str | None) -> None:
    if step == stop_at:
        print(f"stopped, with the transfer {step}: kill me", flush=True)
        threading.Event().wait()


def settle(transfers: Transfers, bank: Bank, other_bank: Group) -> None:
    """Wait until no transaction is open, then receive what the other bank gets. Failed if that takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while transactions := transfers.open():
        if time.monotonic() > deadline:
            raise Failed(f"{len(transactions)} transactions are still open.")
        time.sleep(0.2)
    while messages := other_bank.receive(100, 1):
        for message in messages:
            bank.receive(message)
        other_bank.ack(messages)


def main() -> int:
    """0: what was paid was received; 1: it was not; 2: it could not be tried."""
    args = arguments()
    bank = Bank(args.database)
    check = {
        "check_url": f"http://127.0.0.1:{args.port}/check",
        "check_after_seconds": args.check_after,
    }
    try:
        bank.open()
        transfers = Transfers(Headrace(args.url, find_token(args.token)), args.topic, check)
        transfers.headrace.ask("PUT", f"/v1/topics/{args.topic}", {})
        other_bank = Group(transfers.headrace, args.topic, "other-bank")
        other_bank.create(**{"from": "earliest"})
        answer_checks(bank, args.port, transfers.secret())
        for n in range(args.transfers):
            transfer(transfers, bank, args.amount, args.stop_at if n == args.transfers - 1 else None)
        settle(transfers, bank, other_bank)
    except (Failed, OSError, sqlite3.Error) as error:
        print(f"bank_transfer: {error}", file=sys.stderr)
        return 2
    return report(bank)


def report(bank: Bank) -> int:
    balance, paid, received = bank.sums()
    print(f"balance {balance}, paid {paid}, received by the other bank {received}")
    good = balance + paid == OPENING_BALANCE and paid == received
    print("all is as it should be" if good else "money was lost or made")
    return 0 if good else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--topic", default="bank-transfers", help="the topic to use (%(default)s)")
    parser.add_argument("--database", type=Path, default=Path("bank.sqlite"), help="the bank (%(default)s)")
    parser.add_argument("--port", type=int, default=8720, help="where checks are answered (%(default)s)")
    parser.add_argument(
        "--check-after", type=int, default=5, help="seconds until Headrace asks (%(default)s)"
    )
    parser.add_argument("--transfers", type=int, default=1, help="how many (%(default)s)")
    parser.add_argument("--amount", type=int, default=30, help="of each (%(default)s)")
    parser.add_argument("--stop-at", choices=("prepared", "paid"), help="where to wait to be killed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
