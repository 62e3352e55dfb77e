"""Drives every command wrapper of redis-py against a server with the module.

usage: redis_py.py HOST PORT

Every method of the wrapper classes must be called, in RESP2 and in RESP3; one that a
newer client brings and nobody calls here is reported as an error. Replies are compared
as the client hands them to its users.
"""

import inspect
import sys
import traceback

import redis
from redis.commands.bf import commands as wrappers

HOST, PORT = sys.argv[1], int(sys.argv[2])


class Family:
    """The wrappers of one family, noting which were called."""

    def __init__(self, wrapped, methods):
        self._wrapped = wrapped
        self._methods = methods
        self._called = set()

    def __getattr__(self, name):
        method = getattr(self._wrapped, name)
        self._called.add(name)
        return method

    def missed(self):
        names = {name for name, _ in inspect.getmembers(self._methods, inspect.isfunction)}
        return {name for name in names if not name.startswith("_")} - self._called

    def called(self):
        return len(self._called)


def same(got, wanted):
    assert got == wanted, f"got {got!r}, not {wanted!r}"


def near(got, wanted, tolerance=1e-9):
    assert len(got) == len(wanted), f"got {got!r}, not {wanted!r}"
    for one, other in zip(got, wanted):
        assert abs(float(one) - other) <= tolerance, f"got {got!r}, not {wanted!r}"


def refused(text, call, *args, **kwargs):
    try:
        reply = call(*args, **kwargs)
    except redis.ResponseError as error:
        assert text in str(error), f"refused by {error}, not by {text!r}"
        return
    raise AssertionError(f"got {reply!r}, not an error")


def copy(family, key, to):
    """Copies a filter by its dump."""
    iterator, chunks = 0, 0
    while True:
        iterator, data = family.scandump(key, iterator)
        if iterator == 0:
            return chunks
        same(family.loadchunk(to, iterator, data), b"OK")
        chunks += 1


def bloom(bf):
    same(bf.create("bf", 0.01, 1000), True)
    same(bf.reserve("bf:fixed", 0.01, 2, noScale=True), True)
    same(bf.reserve("bf:grows", 0.01, 2, expansion=4), True)
    refused("item exists", bf.reserve, "bf", 0.01, 1000)
    same(bf.add("bf", "a"), 1)
    same(bf.add("bf", "a"), 0)
    same(bf.madd("bf", "a", "b", "c"), [0, 1, 1])
    same(bf.exists("bf", "a"), 1)
    same(bf.exists("bf", "x"), 0)
    same(bf.mexists("bf", "a", "x", "c"), [1, 0, 1])
    same(bf.insert("bf:new", ["a", "b"], capacity=100, error=0.001, expansion=2), [1, 1])
    same(bf.insert("bf:new", ["b"], noCreate=True), [0])
    refused("not found", bf.insert, "bf:none", ["a"], noCreate=True)
    same(bf.insert("bf:one", ["a"], capacity=1, noScale=True), [1])
    reply = bf.insert("bf:one", ["a", "b"])
    same(reply[0], 0)
    assert isinstance(reply[1], redis.ResponseError), reply
    same(bf.card("bf"), 3)
    same(bf.card("bf:none"), 0)
    info = bf.info("bf")
    same(field(info, "Capacity", "capacity"), 1000)
    same(field(info, "Number of filters", "filterNum"), 1)
    same(field(info, "Number of items inserted", "insertedNum"), 3)
    same(field(info, "Expansion rate", "expansionRate"), 2)
    assert field(info, "Size", "size") > 1000
    same(field(bf.info("bf:fixed"), "Expansion rate", "expansionRate"), None)
    assert copy(bf, "bf", "bf:copy") >= 2
    same(bf.mexists("bf:copy", "a", "b", "c", "x"), [1, 1, 1, 0])
    same(bf.card("bf:copy"), 3)


def cuckoo(cf):
    same(cf.create("cf", 1000), True)
    same(cf.reserve("cf:set", 1000, expansion=2, bucket_size=4, max_iterations=30), True)
    refused("item exists", cf.reserve, "cf", 1000)
    same(cf.add("cf", "a"), 1)
    same(cf.add("cf", "a"), 1)
    same(cf.addnx("cf", "a"), 0)
    same(cf.addnx("cf", "b"), 1)
    same(cf.insert("cf", ["c", "d"]), [1, 1])
    same(cf.insert("cf:new", ["a"], capacity=100), [1])
    refused("not found", cf.insert, "cf:none", ["a"], nocreate=True)
    same(cf.insertnx("cf", ["c", "e"]), [0, 1])
    same(cf.exists("cf", "a"), 1)
    same(cf.exists("cf", "x"), 0)
    same(cf.mexists("cf", "a", "x", "e"), [1, 0, 1])
    same(cf.count("cf", "a"), 2)
    same(cf.count("cf", "x"), 0)
    same(cf.delete("cf", "a"), 1)
    same(cf.count("cf", "a"), 1)
    same(cf.delete("cf", "x"), 0)
    info = cf.info("cf")
    same(field(info, "Number of items inserted", "insertedNum"), 5)
    same(field(info, "Number of items deleted", "deletedNum"), 1)
    same(field(info, "Number of filters", "filterNum"), 1)
    info = cf.info("cf:set")
    same(field(info, "Bucket size", "bucketSize"), 4)
    same(field(info, "Max iterations", "maxIteration"), 30)
    same(field(info, "Expansion rate", "expansionRate"), 2)
    assert field(info, "Size", "size") > 1000 and field(info, "Number of buckets", "bucketNum") >= 250
    assert copy(cf, "cf", "cf:copy") >= 2
    same(cf.mexists("cf:copy", "a", "b", "c", "d", "e", "x"), [1, 1, 1, 1, 1, 0])


def count_min(cms):
    same(cms.initbydim("cms", 1000, 5), True)
    same(cms.initbyprob("cms:prob", 0.01, 0.01), True)
    refused("key already exists", cms.initbydim, "cms", 10, 2)
    same(cms.incrby("cms", ["a", "b"], [3, 5]), [3, 5])
    same(cms.incrby("cms", ["a"], [2]), [5])
    same(cms.query("cms", "a", "b", "x"), [5, 5, 0])
    info = cms.info("cms")
    same(field(info, "width", "width"), 1000)
    same(field(info, "depth", "depth"), 5)
    same(field(info, "count", "count"), 10)
    same(cms.initbydim("cms:sum", 1000, 5), True)
    same(cms.merge("cms:sum", 1, ["cms"]), True)
    same(cms.query("cms:sum", "a"), [5])
    same(cms.merge("cms:sum", 2, ["cms", "cms"], [1, 2]), True)
    same(cms.query("cms:sum", "a", "b"), [15, 15])
    same(field(cms.info("cms:prob"), "width", "width"), 200)
    same(field(cms.info("cms:prob"), "depth", "depth"), 7)


def top_k(topk):
    same(topk.reserve("topk", 2, 50, 5, 0.9), True)
    refused("key already exists", topk.reserve, "topk", 2, 50, 5, 0.9)
    same(topk.add("topk", "a", "a", "a", "b"), [None] * 4)
    same(topk.incrby("topk", ["b", "c"], [4, 1]), [None, None])
    expelled = topk.incrby("topk", ["d"], [100])
    same(text(expelled), ["a"])
    same(topk.query("topk", "d", "a", "b"), [1, 0, 1])
    same(topk.count("topk", "d", "b"), [100, 5])
    same(text(topk.list("topk")), ["d", "b"])
    same(text(topk.list("topk", withcount=True)), ["d", 100, "b", 5])
    info = topk.info("topk")
    same(field(info, "k", "k"), 2)
    same(field(info, "width", "width"), 50)
    same(field(info, "depth", "depth"), 5)
    near([field(info, "decay", "decay")], [0.9])


def t_digest(tdigest):
    same(tdigest.create("td"), True)
    same(tdigest.create("td:fine", compression=500), True)
    refused("key already exists", tdigest.create, "td")
    same(tdigest.add("td", [1, 2, 3, 4, 5]), b"OK")
    same(tdigest.add("td:fine", [10, 20]), b"OK")
    same(tdigest.min("td"), 1)
    same(tdigest.max("td"), 5)
    near(tdigest.quantile("td", 0, 0.5, 1), [1, 3, 5])
    near(tdigest.cdf("td", 0, 3, 9), [0, 0.5, 1])
    same(tdigest.rank("td", 0, 1, 5, 9), [-1, 0, 4, 5])
    same(tdigest.revrank("td", 0, 1, 5, 9), [5, 4, 0, -1])
    near(tdigest.byrank("td", 0, 4), [1, 5])
    near(tdigest.byrevrank("td", 0, 4), [5, 1])
    same(float(tdigest.byrank("td", 9)[0]), float("inf"))
    near([tdigest.trimmed_mean("td", 0.1, 0.9)], [3])
    info = tdigest.info("td")
    same(field(info, "Compression", "compression"), 100)
    same(field(info, "Merged weight", "merged_weight") + field(info, "Unmerged weight", "unmerged_weight"), 5)
    assert field(info, "Memory usage", "memory_usage") > 0
    same(tdigest.merge("td:sum", 2, "td", "td:fine"), b"OK")
    same(tdigest.max("td:sum"), 20)
    same(tdigest.merge("td:sum", 1, "td", compression=300, override=True), b"OK")
    same(tdigest.max("td:sum"), 5)
    same(field(tdigest.info("td:sum"), "Compression", "compression"), 300)
    same(tdigest.reset("td"), b"OK")
    assert tdigest.min("td") != tdigest.min("td"), "an empty digest has no minimum"


def field(info, name, attribute):
    """A field of INFO: the client makes an object of it in RESP2 and a map in RESP3."""
    if not isinstance(info, dict):
        return getattr(info, attribute)
    return info[name] if name in info else info[name.encode()]


def text(items):
    return [item.decode() if isinstance(item, bytes) else item for item in items]


FAMILIES = [
    ("bf", wrappers.BFCommands, bloom),
    ("cf", wrappers.CFCommands, cuckoo),
    ("cms", wrappers.CMSCommands, count_min),
    ("topk", wrappers.TOPKCommands, top_k),
    ("tdigest", wrappers.TDigestCommands, t_digest),
]


def modules(client):
    for module in client.module_list():
        entry = module if isinstance(module, dict) else dict(zip(module[::2], module[1::2]))
        entry = {text([key])[0]: value for key, value in entry.items()}
        yield text([entry["name"]])[0], entry["ver"]


def main():
    passed = failed = 0
    for protocol in (2, 3):
        client = redis.Redis(HOST, PORT, protocol=protocol)
        if protocol == 3 and int(client.info("server")["redis_version"].split(".")[0]) < 7:
            print("skipped RESP3: modules cannot speak it before Redis 7.0")
            continue
        client.flushall()
        assert ("bf", 81000) in list(modules(client)), list(modules(client))
        for name, methods, drive in FAMILIES:
            family = Family(getattr(client, name)(), methods)
            title = f"redis-py {redis.__version__} RESP{protocol} {name}"
            try:
                drive(family)
                assert not family.missed(), f"wrappers not driven: {sorted(family.missed())}"
            except Exception as error:  # one broken family must not hide the others
                failed += 1
                frames = traceback.extract_tb(error.__traceback__)
                line = [frame.lineno for frame in frames if frame.filename == __file__][-1]
                print(f"FAILED {title}: {type(error).__name__}: {error} (line {line})")
                continue
            passed += 1
            print(f"ok {title}: {family.called()} wrappers")
        client.flushall()
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
