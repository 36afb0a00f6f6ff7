"""Requests that cost a member most, one kind after the other: `costly_requests.py ATTACK PORT SECONDS KEYS`.

PORT + 1 to PORT + 3 are the members' client ports. What was answered is printed, and how long the longest took.
"""

import base64, collections, http.client, json, socket, sys, threading, time, urllib.error, urllib.request

attack, port, seconds, keys = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
# A client that ends would make the load smaller without a word.
died = []
threading.excepthook = lambda args: died.append(repr(args.exc_value))
answers, longest, lock, until = collections.Counter(), collections.Counter(), threading.Lock(), time.time() + seconds


def name(text):
    return base64.b64encode(text).decode()


def ask(member, path, body, what):
    """Asks one member over JSON, and counts how it ended."""
    url = "http://127.0.0.1:%d/%s" % (port + member, path)
    begun, outcome, answer = time.time(), "done", b""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()), timeout=120) as response:
            if path == "v3/maintenance/snapshot" or what.startswith("range of all"):
                while piece := response.read(1 << 20):
                    answer = piece[-200:]
            else:
                answer = response.read()
            if b'"error"' in answer[-200:]:
                outcome = "refused"
    except urllib.error.HTTPError as error:
        outcome, answer = "refused", error.read()
    except (OSError, http.client.HTTPException):
        outcome = "cut off"
    with lock:
        answers[what, outcome] += 1
        longest[what] = max(longest[what], time.time() - begun)
    return answer


ALL = {"key": name(b"\0"), "range_end": name(b"\0")}
MARK = {"request_put": {"key": name(b"mark"), "value": name(b"x")}}


def clients(count, turn):
    """So many clients, each of which does the same until the time is over."""

    def client(n):
        while time.time() < until:
            turn(n)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def transactions():
    compare = {**ALL, "target": "VERSION", "result": "GREATER", "version": "0"}

    def turn(n):
        few = {"key": name(b"gone/%d/" % n), "range_end": name(b"gone/%d0" % n)}
        puts = [{"request_put": {"key": name(b"gone/%d/%d" % (n, i)), "value": name(b"x" * 256)}} for i in range(120)]
        ranges = [{"request_range": {**ALL, "limit": "10"}}] * 100 + [MARK]
        member = 1 + n % 3
        ask(member, "v3/kv/txn", {"compare": [compare] * 128, "success": [MARK]}, "128 comparisons of all keys")
        ask(member, "v3/kv/txn", {"success": ranges}, "100 ranges over all keys")
        ask(member, "v3/kv/deleterange", ALL, "delete everything")
        ask(member, "v3/kv/txn", {"success": puts}, "120 puts")
        ask(member, "v3/kv/deleterange", few, "delete what was put")
        ask(member, "v3/kv/put", {"key": name(b"one"), "value": name(b"x")}, "one put")

    clients(12, turn)


def reads():
    def turn(n):
        member = 1 + n % 3
        if n < 6:
            ask(member, "v3/kv/range", ALL, "range of all keys")
        elif n < 8:
            ask(member, "v3/kv/range", {**ALL, "sort_target": "VALUE", "sort_order": "DESCEND", "limit": "5"}, "all keys sorted by value")
        elif n < 10:
            ask(member, "v3/maintenance/hash", {}, "hash of all")
        elif n < 11:
            ask(member, "v3/maintenance/snapshot", {}, "snapshot for a client")
        else:
            ask(member, "v3/kv/put", {"key": name(b"one"), "value": name(b"x")}, "one put")
            time.sleep(0.01)

    clients(12, turn)


read_bytes = collections.Counter()


def watching(member, start, seconds_to_read):
    """Opens a watch of all keys from a revision on, and reads it so long, or not at all."""
    link = socket.create_connection(("127.0.0.1", port + member))
    body = json.dumps({"create_request": {**ALL, "start_revision": str(start)}}).encode()
    head = "POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    link.sendall(head.encode() + body)
    link.settimeout(1)
    end = time.time() + seconds_to_read
    while time.time() < end:
        try:
            piece = link.recv(1 << 20)
            with lock:
                read_bytes[member] += len(piece)
            if not piece:
                break
        except TimeoutError:
            pass
    return link


def watches():
    """Four that catch up with all history, and twenty that read nothing while keys are written and deleted."""
    idle = [watching(1 + n % 3, 0, 0) for n in range(20)]
    catching_up = [threading.Thread(target=watching, args=(1 + n % 3, 1, seconds)) for n in range(4)]
    for thread in catching_up:
        thread.start()

    def turn(n):
        puts = [{"request_put": {"key": name(b"seen/%d/%d" % (n, i)), "value": name(b"x" * 4096)}} for i in range(120)]
        ask(1 + n % 3, "v3/kv/txn", {"success": puts}, "120 puts of 4 KiB")
        ask(1 + n % 3, "v3/kv/deleterange", {"key": name(b"seen/%d/" % n), "range_end": name(b"seen/%d0" % n)}, "delete them")

    clients(6, turn)
    for thread in catching_up:
        thread.join()
    print("  %d watchers that read nothing, %d that read %d MB of history" % (
        len(idle), len(catching_up), sum(read_bytes.values()) / 1e6))


def history():
    """Compactions of all that was written, while it is written."""

    def turn(n):
        if n == 0:
            head = json.loads(ask(1, "v3/kv/put", {"key": name(b"one"), "value": name(b"x")}, "one put") or b"{}")
            if revision := head.get("header", {}).get("revision"):
                what = "compaction of all history" if not answers["compaction of all history", "done"] else "compaction of a second"
                ask(1, "v3/kv/compaction", {"revision": revision}, what)
            time.sleep(1)
        else:
            puts = [{"request_put": {"key": name(b"kept/%d" % i), "value": name(b"x" * 256)}} for i in range(120)]
            ask(1 + n % 3, "v3/kv/txn", {"success": puts}, "120 puts over older ones")

    clients(6, turn)


def leases():
    """A lease of 10,000 keys is revoked, and 10,000 leases of one key each end within a second or two."""
    count = min(keys, 10_000)
    held = json.loads(ask(1, "v3/lease/grant", {"TTL": "600"}, "one lease"))["ID"]
    todo = iter(range(count))
    end = time.time() + 60

    def grant(n):
        while True:
            with lock:
                i = next(todo, None)
            if i is None:
                return
            left = max(2, round(end - time.time()))
            lease = json.loads(ask(1 + n % 3, "v3/lease/grant", {"TTL": str(left)}, "a lease with a key") or b"{}")
            puts = [("short/%d" % i, lease.get("ID", held)), ("long/%d" % i, held)]
            body = {"success": [{"request_put": {"key": name(k.encode()), "value": name(b"x"), "lease": of}} for k, of in puts]}
            ask(1 + n % 3, "v3/kv/txn", body, "two keys on leases")

    threads = [threading.Thread(target=grant, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("  %d leases were granted %.0f s before they end" % (count, end - time.time()))
    ask(2, "v3/lease/revoke", {"ID": held}, "revoke a lease of %d keys" % count)
    time.sleep(max(0, end - time.time()) + 8)
    asked = {"key": name(b"short/"), "range_end": name(b"short0"), "count_only": True}
    left = json.loads(ask(3, "v3/kv/range", asked, "what is left") or b"{}")
    print("  and %s keys of them are left 8 s after that" % left.get("count", 0))


def accounts():
    """Users are added with passwords, whose hashes are slow on purpose."""

    def turn(n):
        user = "user-%d-%f" % (n, time.time())
        ask(1 + n % 3, "v3/auth/user/add", {"name": user, "password": "x" * 60}, "a user with a password")
        ask(1 + n % 3, "v3/kv/put", {"key": name(b"one"), "value": name(b"x")}, "one put")

    clients(12, turn)


def uploads():
    """Four hundred bodies of 1 MB that do not end, and 300 puts of 1 MB at once."""
    half = b"x" * 1_000_000
    links = []
    for n in range(400):
        link = socket.create_connection(("127.0.0.1", port + 1))
        link.setblocking(False)
        head = b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1400000\r\n\r\n{\"key\":\"eA==\",\"value\":\""
        try:
            link.send(head + half)
        except OSError:
            pass
        links.append(link)
    value = name(b"y" * 1_000_000)

    def turn(n):
        ask(1, "v3/kv/put", {"key": name(b"large/%d" % (n % 8)), "value": value}, "put of 1 MB")

    clients(64, turn)
    print("  %d uploads that never end" % len(links))


{
    "transactions": transactions, "reads": reads, "watches": watches, "history": history, "leases": leases,
    "accounts": accounts, "uploads": uploads,
}[attack]()
for what in dict.fromkeys(what for what, _ in answers):
    print("  %-32s %7d done, %6d refused, %4d cut off, longest %.0f ms" % (
        what, answers[what, "done"], answers[what, "refused"], answers[what, "cut off"], longest[what] * 1000))
if died:
    sys.exit("costly_requests.py: clients ended: " + "; ".join(died[:3]))
