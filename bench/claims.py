"""Measure the storage forms of a consumer group's cursor (docs/adr/0001-cursor-storage-form.md).

One cycle: claim 10 messages of a shard, read them from the log, settle them. The forms:

A   versioned replace: claim and settle put the whole item, conditional on its version
B   ticket: a claim adds to `next` and gets its range back; a settle adds to a set of ranges; now and
    then a claim also folds that set into floor and ranges, conditional on a counter of folds alone
D   patch: claims (each one folds) are serialised by an epoch; a settle is conditional on its own lease

Needs AWS_ENDPOINT_URL_DYNAMODB, else starts the local engine. Each run proves that every offset was
settled exactly once and that the floor reaches the tail. Figures are per message, lost claims included.
"""

import argparse
import itertools
import multiprocessing as mp
import os
import random
import statistics
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import boto3
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config

Item = dict[str, Any]  # fl floor, nx next, ep epoch, fe folds, l leases, s starts of leases,
Range = tuple[int, int]  # dd settled ranges, d those settled since the last fold; a range: first, last offset
BATCH, SEGMENT, BODY, FOLD, PUTS, TABLE = 10, 25, 240, 8, 400, f"bench_claims_{os.getpid()}"
typed, plain = TypeSerializer().serialize, TypeDeserializer().deserialize


class Cell(NamedTuple):
    """One run; `leases` batches are in flight beforehand. Form "" is the baseline: bare conditional puts."""

    leases: int
    shards: int
    consumers: int
    form: str
    messages: int

    @property
    def tail(self) -> int:
        return self.leases * BATCH + self.messages // self.shards - 1


class Lost(Exception):
    """A condition failed; the cursor as it really is has been cached."""


def size(v: Any, top: bool = False) -> int:
    """Bytes of a value (at the top: of an item) as DynamoDB counts them; numbers approximately."""
    if isinstance(v, dict):
        return (0 if top else 3) + sum(len(k) + size(x) + (not top) for k, x in v.items())
    return sum(map(len, v)) if isinstance(v, str | set) else (len(str(v)) + 1) // 2 + 1


def fold(item: Item, *more_ranges: Range) -> Item:
    """Floor and settled ranges once every loose range is folded in."""
    out: list[Range] = [(-1, int(item["fl"]) - 1)]
    texts = [*filter(None, item["dd"].split(",")), *item.get("d", ())]
    for lo, hi in sorted([*((int(a), int(b)) for a, b in (s.split("-") for s in texts)), *more_ranges]):
        out.append((out.pop()[0] if out[-1][1] + 1 == lo else lo, hi))
    return {"fl": out[0][1] + 1, "dd": ",".join(f"{lo}-{hi}" for lo, hi in out[1:])}


class Form:
    """What the forms share: calls that are counted, the cached cursors, reading the log."""

    starts = False  # the start of a lease is kept apart from it

    def __init__(self, client: Any, cell: Cell, name: str) -> None:
        self.client, self.cell, self.name, self.counters = client, cell, name, Counter[str]()
        self.cache = {s: new_cursor(cell, s, self.starts) for s in range(cell.shards)}

    def write(self, shard: int, verb: str, condition: str, values: Item, **args: Any) -> Item:
        """A conditional write; returns and caches the item after it, or caches the item as it is and raises Lost."""
        self.counters["trips"] += 1
        try:
            answer = getattr(self.client, verb)(
                TableName=TABLE,
                ConditionExpression=condition,
                ReturnConsumedCapacity="TOTAL",
                ExpressionAttributeValues={f":{k}": typed(v) for k, v in values.items()},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **args,
            )
        except self.client.exceptions.ConditionalCheckFailedException as e:
            self.cache[shard] = plain({"M": e.response["Item"]})
            units = -(-size(self.cache[shard], True) // 1024)  # the exception does not say: 1 per started KiB
            self.counters.update(failed=1, writes=units)
            raise Lost from None
        self.counters["writes"] += answer["ConsumedCapacity"]["CapacityUnits"]
        item: Item = plain({"M": answer.get("Attributes") or args["Item"]})
        self.cache[shard], self.counters["largest"] = item, max(self.counters["largest"], size(item, True))
        return item

    def update(self, shard: int, expr: str, condition: str, token: str, **values: Any) -> Item:
        return self.write(
            shard,
            "update_item",
            condition,
            values,
            Key=typed({"p": f"g/{shard}", "o": 0})["M"],
            UpdateExpression=expr,
            ReturnValues="ALL_NEW",
            ExpressionAttributeNames={"#t": token},
        )

    def query(self, shard: int, condition: str, *values: int, **args: Any) -> list[Item]:
        answer = self.client.query(
            TableName=TABLE,
            KeyConditionExpression=f"p = :p AND {condition}",
            ReturnConsumedCapacity="TOTAL",
            ExpressionAttributeValues={":p": typed(f"t/{shard}")}
            | {f":{i}": typed(n) for i, n in enumerate(values)},
            **args,
        )
        self.counters.update(trips=1, reads=answer["ConsumedCapacity"]["CapacityUnits"])
        return list(answer["Items"])

    def read(self, shard: int, r: Range) -> list[Item]:
        """The segment that holds a range's end and, while that begins too late, the one before it."""
        rows = self.query(shard, "o <= :0", r[1], ScanIndexForward=False, Limit=1)
        while (start := int(rows[-1]["o"]["N"])) > r[0]:
            rows += self.query(shard, "o < :0", start, ScanIndexForward=False, Limit=1)
        return rows


class Replace(Form):
    def put(self, shard: int, item: Item) -> None:
        self.write(
            shard, "put_item", "ep = :e", {"e": item["ep"]}, Item=typed(item | {"ep": item["ep"] + 1})["M"]
        )

    def claim(self, shard: int, token: str, r: Range) -> Range:
        item = self.cache[shard]
        self.put(shard, item | {"nx": r[1] + 1, "l": item["l"] | {token: lease(r, self.name)}})
        return r

    def settle(self, shard: int, token: str, r: Range) -> None:
        item = self.cache[shard]
        try:
            self.put(shard, item | fold(item, r) | {"l": {t: v for t, v in item["l"].items() if t != token}})
        except Lost:
            self.settle(shard, token, r)


class Ticket(Form):
    starts = True

    def claim(self, shard: int, token: str, r: Range) -> Range:
        item, k = self.cache[shard], r[1] - r[0] + 1
        values = {"one": 1, "k": k, "lim": self.cell.tail + 1 - k, "l": lease(r, self.name, False)}
        take = "SET ep = ep + :one, nx = nx + :k, s.#t = nx, l.#t = :l"
        free = "nx <= :lim AND attribute_not_exists(l.#t)"  # the second half: a repeat after a lost answer
        if len(item.get("d", ())) >= FOLD:
            take, free = f"{take}, fl = :fl, dd = :dd, fe = fe + :one DELETE d :a", f"{free} AND fe = :fe"
            values |= {**fold(item), "fe": item["fe"], "a": item["d"]}
        first = int(self.update(shard, take, free, token, **values)["s"][token])
        return first, first + k - 1

    def settle(self, shard: int, token: str, r: Range) -> None:
        self.update(
            shard, "REMOVE l.#t, s.#t ADD d :d", "attribute_exists(l.#t)", token, d={f"{r[0]}-{r[1]}"}
        )


class Patch(Form):
    def claim(self, shard: int, token: str, r: Range) -> Range:
        item = self.cache[shard]
        deletion = {"a": item["d"]} if "d" in item else {}
        take = "SET ep = :e1, nx = :n, dd = :dd, fl = :fl, l.#t = :l" + (" DELETE d :a" if deletion else "")
        self.update(
            shard,
            take,
            "ep = :e",
            token,
            e=item["ep"],
            e1=item["ep"] + 1,
            n=r[1] + 1,
            l=lease(r, self.name),
            **fold(item),
            **deletion,
        )
        return r

    def settle(self, shard: int, token: str, r: Range) -> None:
        old_lease = self.cache[shard]["l"][token]
        self.update(shard, "REMOVE l.#t ADD d :d", "l.#t = :l", token, d={f"{r[0]}-{r[1]}"}, l=old_lease)


FORMS: dict[str, type[Any]] = {"A": Replace, "B": Ticket, "D": Patch}


def lease(r: Range, owner: str, start: bool = True) -> str:
    return f"{r[0] if start else ''}+{r[1] - r[0] + 1};{int(time.time() * 1000) + 30_000};1;{owner}"


def new_cursor(cell: Cell, shard: int, starts: bool) -> Item:
    """A new cursor, with `cell.leases` claims of a batch each still out."""
    out = {f"p{i:x}": (i * BATCH, i * BATCH + BATCH - 1) for i in range(cell.leases)}
    return {
        "p": f"g/{shard}",
        "o": 0,
        "fl": 0,
        "nx": len(out) * BATCH,
        "ep": 0,
        "fe": 0,
        "dd": "",
        "l": {t: lease(r, "c1", not starts) for t, r in out.items()},
        "s": {t: r[0] for t, r in out.items() if starts},
    }


def consume(form: Any, shards: list[int], rng: random.Random) -> list[tuple[int, Range]]:
    """Claim, read, settle until all is drained; hop when a claim is lost and there is elsewhere to go."""
    settlements, tries, shard = [], 0, rng.choice(shards)
    while shards:
        if (
            first := int(form.cache[shard]["nx"])
        ) > form.cell.tail:  # `next` never falls: this shard is drained
            shards.remove(shard)
            shard = rng.choice(shards or [0])
            continue
        token, tries = f"{form.name}{tries:x}", tries + 1
        try:
            r = form.claim(shard, token, (first, min(first + BATCH - 1, form.cell.tail)))
        except Lost:
            shard = rng.choice(shards)
            continue
        bodies = {int(m["S"].split()[0]) for row in form.read(shard, r) for m in row["m"]["L"]}
        assert bodies.issuperset(range(r[0], r[1] + 1)), "a claimed message was not read"
        form.settle(shard, token, r)
        settlements.append((shard, r))
    return settlements


def connect(endpoint: str) -> Any:
    return boto3.client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}),
    )


def worker(number: int, endpoint: str, pipe: Any) -> None:
    """A consumer process: performs each run that it receives through the pipe, at the given time."""
    client = connect(endpoint)
    while job := pipe.recv():
        cell, seed, at = job
        form = FORMS.get(cell.form, Form)(client, cell, f"{number}.")
        time.sleep(max(0.0, at - time.time()))
        settlements = (
            consume(form, list(range(cell.shards)), random.Random(seed * 100 + number)) if cell.form else []
        )
        for i in range(0 if cell.form else PUTS // cell.consumers):
            item = {"p": f"x/{seed}/{number}", "o": i, "v": "x" * BODY}
            form.write(0, "put_item", "p <> :p", {"p": "-"}, Item=typed(item)["M"])
        pipe.send((form.counters, settlements, time.time() - at))


def prepare(client: Any, per_shard: dict[int, int]) -> None:
    """The table and the log's segments."""
    client.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": a, "AttributeType": t} for a, t in ("pS", "oN")],
        KeySchema=[{"AttributeName": a, "KeyType": k} for a, k in (("p", "HASH"), ("o", "RANGE"))],
    )
    for shard, count in per_shard.items():
        for start in range(0, count, SEGMENT):
            texts = [f"{o} ".ljust(BODY, "x") for o in range(start, min(start + SEGMENT, count))]
            row = {"p": f"t/{shard}", "o": start, "c": len(texts), "m": texts}
            client.put_item(TableName=TABLE, Item=typed(row)["M"])


def prove(client: Any, cell: Cell, settlements: list[tuple[int, Range]]) -> None:
    """Every offset was settled exactly once, and the floor reaches the tail once the old leases are settled too."""
    form = FORMS[cell.form](client, cell, "")
    for shard in range(cell.shards):
        flat = sorted(o for s, (lo, hi) in settlements if s == shard for o in range(lo, hi + 1))
        assert flat == list(range(cell.leases * BATCH, cell.tail + 1)), f"{cell}: not exactly once"
        key = typed({"p": f"g/{shard}", "o": 0})["M"]
        form.cache[shard] = plain(
            {"M": client.get_item(TableName=TABLE, Key=key, ConsistentRead=True)["Item"]}
        )
        for token in list(form.cache[shard]["l"]):
            form.settle(shard, token, ((lo := int(token[1:], 16) * BATCH), lo + BATCH - 1))
        item = form.cache[shard]
        assert fold(item) == {"fl": cell.tail + 1, "dd": ""}, f"{cell}: {item}"
        assert item["nx"] == cell.tail + 1, f"{cell}: {item}"
        assert not item["l"], f"{cell}: leases remain"
        assert not item["s"], f"{cell}: starts remain"


def run(client: Any, pipes: list[Any], cell: Cell, seed: int) -> list[float]:
    """One run; the figures per message, or the baseline's puts a second."""
    for shard in range(cell.shards if cell.form else 0):
        client.put_item(TableName=TABLE, Item=typed(new_cursor(cell, shard, FORMS[cell.form].starts))["M"])
    at = time.time() + 0.05
    for pipe in pipes[: cell.consumers]:
        pipe.send((cell, seed, at))
    tallies, settlements, seconds = zip(*(pipe.recv() for pipe in pipes[: cell.consumers]), strict=True)
    if not cell.form:
        return [PUTS / max(seconds)]
    prove(client, cell, list(itertools.chain.from_iterable(settlements)))
    sums = [sum(t[a] for t in tallies) / cell.messages for a in ("writes", "reads", "trips", "failed")]
    return [*sums, cell.messages / max(seconds), max(t["largest"] for t in tallies)]


def measure(endpoint: str, args: argparse.Namespace) -> dict[Cell, list[list[float]]]:
    """Every cell, args.repeat times; each block of cells has its own baseline."""
    client, n, pipe_pairs = connect(endpoint), args.messages, [mp.Pipe() for _ in range(max(args.consumers))]
    prepare(client, dict.fromkeys(range(16), n // 16) | {0: n + 1000})
    for i, end in enumerate(pipe_pairs):
        mp.Process(target=worker, args=(i, endpoint, end[1]), daemon=True).start()
    pipes, results = [end[0] for end in pipe_pairs], dict[Cell, list[list[float]]]()
    blocks = [(leases, shards, c) for leases, shards in ((0, 1), (0, 16), (100, 1)) for c in args.consumers]
    for seed, (leases, shards, c) in enumerate(blocks * args.repeat):
        (base,) = run(client, pipes, Cell(leases, shards, c, "", n), seed)
        for cell in (Cell(leases, shards, c, name, n) for name in args.forms):
            figures = run(client, pipes, cell, seed)
            results.setdefault(cell, []).append([*figures, figures[4] / base])
            print(cell, [round(f, 3) for f in results[cell][-1]], file=sys.stderr)
    client.delete_table(TableName=TABLE)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--messages", type=int, default=4000, help="per run, a multiple of 400 (default 4000)"
    )
    parser.add_argument("--repeat", type=int, default=2, help="runs of each cell (default 2)")
    parser.add_argument(
        "--consumers", type=int, nargs="+", default=[1, 4, 8], help="processes (default 1 4 8)"
    )
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    args = parser.parse_args()
    with ExitStack() as stack:
        if not (endpoint := os.environ.get("AWS_ENDPOINT_URL_DYNAMODB")):
            sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
            from local.engine.dynamodb_local import dynamodb_local

            endpoint = stack.enter_context(dynamodb_local()).endpoint
        results = measure(endpoint, args)
    print(
        "| in flight | shards | consumers | form | write units | read units | round trips | failed | messages/s "
        "| x baseline | largest item |\n" + "|--:" * 11 + "|"
    )
    for cell, runs in sorted(results.items()):
        *cost, rate, big, ratio = (statistics.mean(column) for column in zip(*runs, strict=True))
        print(
            f"| {cell.leases * BATCH} | {cell.shards} | {cell.consumers} | {cell.form} | "
            + " | ".join(f"{x:.3f}" for x in cost)
            + f" | {rate:,.0f} | {ratio:.2f} | {big:,.0f} |"
        )


if __name__ == "__main__":
    main()
