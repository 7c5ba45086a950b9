"""Measures this cluster with PyTorch alone, and writes it as a cluster file of Meshwright.

    torchrun --nproc-per-node 8 THIS_FILE cluster.toml
    torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 THIS_FILE cluster.toml

One process for each device; without GPUs, processes on cores (gloo). It measures products by shape, attention, memory, copies to the host,
and collectives by group and size, within a node and between nodes. Of each it prints the lower quartile of rounds, which the file has, with
their median and spread: the distance of the 10th from the 90th percentile, as a share of the median. Rank 0 writes the file; `meshwright
clusters cluster.toml` checks it, and `meshwright estimate MODEL --cluster cluster.toml` predicts with it. Measure on idle machines.
"""

import argparse
import math
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as functional

# Rows, columns and depth of products: layers of models of the size that a GPU, or a core, trains.
GPU_PRODUCTS = [
    (8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024), (4096, 2048, 2048), (4096, 512, 2048),
    (4096, 8192, 2048), (4096, 2048, 8192), (4096, 1024, 4096), (4096, 14336, 4096), (4096, 4096, 14336), (128, 4096, 4096), (512, 256, 256),
]
CORE_PRODUCTS = [
    (128, 256, 256), (128, 768, 256), (128, 256, 768), (128, 64, 256), (512, 256, 256), (512, 768, 256), (512, 256, 768), (512, 64, 256), (512, 256, 64),
]
# Products of cores that are added to what is there: gradients of weights, whose depth is the tokens.
CORE_ADDED = [(256, 768, 128), (256, 768, 512), (256, 64, 512)]
# Sizes of heads; lengths of sequences with numbers of heads.
GPU_ATTENTION = ([64, 128], [(512, 128), (2048, 32), (8192, 8)])
CORE_ATTENTION = ([32, 64, 128], [(128, 4), (512, 1)])
# Bytes of a rank in collectives; the first are so few that only their start counts.
GPU_BYTES = [1 << 12, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28]
CORE_BYTES = [1 << 8, 1 << 17, 1 << 20, 1 << 23]
# Tiles of matrix products on GPUs, with their shares of the full rate, as the presets of Meshwright have them; a core has none.
GPU_TILES = [(128, 256, 1.0), (128, 192, 0.97), (128, 128, 0.93), (64, 128, 0.8), (64, 64, 0.65)]
CORE_TILES = [(1, 1, 1.0)]
SPLITS = (1, 2, 4, 8)
# Rounds of a measurement and seconds of each. On a core they are shorter than the turn that another program takes there.
GPU_ROUNDS, CORE_ROUNDS = (15, 0.02), (200, 0.0005)
# Rounds of a collective, the bytes of a rank that go in each, and the most calls of one.
GPU_MESSAGES, CORE_MESSAGES = (15, 1 << 24, 50), (24, 1 << 20, 16)
# Bytes that the calls of a kernel go through in turn, more than caches hold, and the most sets of tensors.
TURNED, MOST_SETS = 64 << 20, 256


class Bench:
    """The device of this process, and how calls are timed."""

    def __init__(self, quick):
        self.gpu = torch.cuda.is_available()
        self.rounds, self.round = GPU_ROUNDS if self.gpu else CORE_ROUNDS
        self.messages, self.sent, self.most = GPU_MESSAGES if self.gpu else CORE_MESSAGES
        if quick:
            self.rounds, self.messages = 3, 3
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.local, self.nodes_ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        self.cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.device = torch.device("cuda", self.local) if self.gpu else torch.device("cpu")
        if self.gpu:
            torch.cuda.set_device(self.device)
        else:
            torch.set_num_threads(1)
        # Talk between processes beside what is measured.
        self.talk = dist.new_group(backend="gloo")
        self.rows = []

    def sync(self):
        if self.gpu:
            torch.cuda.synchronize()

    def gathered(self, value):
        values = [None] * self.world
        dist.all_gather_object(values, value, group=self.talk)
        return values

    def time(self, call, number=None):
        """Seconds of a call: the lower quartile of rounds, their median, and their spread. A round is a number of calls without a pause
        between them. The quartile leaves out other programs, as long as the device is free for a quarter of the time."""
        call()
        self.sync()
        count = self.rounds if number is None else self.messages
        if number is None:
            began = time.perf_counter()
            call()
            self.sync()
            number = max(1, min(1000, int(self.round / max(time.perf_counter() - began, 1e-7))))
        rounds = []
        for _ in range(count):
            self.sync()
            began = time.perf_counter()
            for _ in range(number):
                call()
            self.sync()
            rounds.append((time.perf_counter() - began) / number)
        tenths = statistics.quantiles(rounds, n=10)
        median = statistics.median(rounds)
        return sorted(rounds)[count // 4], median, (tenths[-1] - tenths[0]) / median

    def kernel(self, what, call, amount, unit):
        """Times a kernel on all devices at once; where there are fewer cores than processes, on as many. Returns the lower median
        of processes."""
        dist.barrier(group=self.talk)
        takes_part = self.gpu or self.local < self.cores
        found = [times for times in self.gathered(self.time(call) if takes_part else None) if times]
        return self.told(what, found, amount, unit)

    def collective(self, what, call, takes_part, bytes_):
        """Times a call that processes make together."""
        dist.barrier(group=self.talk)
        number = max(1, min(self.most, self.sent // max(bytes_, 1)))
        found = [times for times in self.gathered(self.time(call, number) if takes_part else None) if times]
        return self.told(what, found, bytes_, "B")

    def told(self, what, found, amount, unit):
        seconds, median, spread = (statistics.median_low(values) for values in zip(*found))
        self.rows.append((what, seconds, median, spread, f"{amount / seconds:.3g} {unit}/s"))
        if self.rank == 0:
            times = f"{seconds * 1e6:12.1f} us  median {median * 1e6:12.1f} us  +-{100 * spread:4.0f} %"
            print(f"{what:44} {times}  {amount / seconds:10.3g} {unit}/s", flush=True)
        return seconds


def in_turn(make, bytes_):
    """Sets of tensors that calls take in turn, so that none is in a cache."""
    sets = [make() for _ in range(max(1, min(MOST_SETS, TURNED // max(bytes_, 1))))]
    state = {"next": 0}

    def following():
        state["next"] = (state["next"] + 1) % len(sets)
        return sets[state["next"]]

    return following


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def products(bench, dtype):
    """Seconds of a product of each shape."""
    found = []
    width = torch.finfo(dtype).bits // 8
    wanted = GPU_PRODUCTS if bench.gpu else CORE_PRODUCTS + CORE_ADDED
    for at, (m, n, k) in enumerate(wanted):
        adds = not bench.gpu and at >= len(CORE_PRODUCTS)

        def make():
            shapes = ((m, k, dtype), (k, n, dtype), (m, n, torch.float32 if adds else dtype))
            return [torch.full((rows, columns), 0.5, dtype=of, device=bench.device).uniform_(-1, 1) for rows, columns, of in shapes]

        sets = in_turn(make, (m * k + k * n) * width + m * n * (4 if adds else width))

        def call():
            a, b, out = sets()
            if adds and dtype != torch.float32:
                # PyTorch has no product of narrow operands that is added to f32.
                out.add_(torch.mm(a, b))
            elif adds:
                out.addmm_(a, b)
            else:
                torch.mm(a, b, out=out)

        name = name_of(dtype) + (", added" if adds else "")
        found.append(((m, n, k), bench.kernel(f"product {m}x{n}, depth {k}, {name}", call, 2 * m * n * k, "FLOP")))
    return found


def attention(bench, dtype):
    """Seconds of causal attention and of its gradient: (head, length, heads, forward, backward)."""
    sizes, lengths = GPU_ATTENTION if bench.gpu else CORE_ATTENTION
    found = []
    for head in sizes:
        for length, heads in lengths:
            def make():
                inputs = [torch.randn(1, heads, length, head, dtype=dtype, device=bench.device, requires_grad=True) for _ in range(3)]
                out = functional.scaled_dot_product_attention(*inputs, is_causal=True)
                return inputs, out, torch.randn_like(out)

            # Queries, keys, values, results, and their gradients.
            sets = in_turn(make, 8 * heads * length * head * torch.finfo(dtype).bits // 8)
            pairs = heads * length * (length + 1) / 2

            def forward():
                with torch.no_grad():
                    functional.scaled_dot_product_attention(*sets()[0], is_causal=True)

            def backward():
                inputs, out, gradient = sets()
                torch.autograd.grad(out, inputs, gradient, retain_graph=True)

            times = [
                bench.kernel(f"attention {way}, {length} tokens, heads of {head}, {name_of(dtype)}", call, each * pairs * head, "FLOP")
                for way, call, each in (("forward", forward, 4), ("backward", backward, 10))
            ]
            found.append((head, length, heads, *times))
    return found


def memory(bench, dtype):
    """Bytes per second of a copy, and of a sum of two tensors."""
    elements = 1 << 25 if bench.gpu else 1 << 16
    sets = in_turn(lambda: [torch.ones(elements, dtype=dtype, device=bench.device) for _ in range(3)], 3 * elements * torch.finfo(dtype).bits // 8)
    size = elements * torch.finfo(dtype).bits // 8

    def copy():
        a, b, _ = sets()
        b.copy_(a)

    def add():
        a, b, out = sets()
        torch.add(a, b, out=out)

    copied = bench.kernel(f"copy, {name_of(dtype)}", copy, 2 * size, "B")
    return 2 * size / copied, 3 * size / bench.kernel(f"sum of two tensors, {name_of(dtype)}", add, 3 * size, "B")


def start(bench):
    """Seconds of a kernel that has next to nothing to do. On a GPU from a graph, whose kernels wait for no launch."""
    a = torch.zeros(32 if bench.gpu else 1, device=bench.device)
    one = torch.zeros(1, 1, device=bench.device)
    if not bench.gpu:
        return bench.kernel("least kernel", lambda: torch.mm(one, one, out=a.view(1, 1)), 0, "B")
    number = 256
    a.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(number):
            a.add_(1)
    return bench.kernel(f"{number} least kernels", graph.replay, 0, "B") / number


def host(bench):
    """Bytes per second to the host and back, while all devices of a node copy; 0 without GPUs."""
    if not bench.gpu:
        return 0.0
    size = 1 << 28
    there, here = torch.empty(size, dtype=torch.uint8, pin_memory=True), torch.empty(size, dtype=torch.uint8, device=bench.device)
    ways = [("copy to the host", lambda: there.copy_(here, non_blocking=True)), ("copy from the host", lambda: here.copy_(there, non_blocking=True))]
    return min(size / bench.kernel(what, call, size, "B") for what, call in ways)


def groups(bench):
    """Groups of ranks: a name, their number of ranks, whether they are between nodes, and this process's own one."""
    local, world = bench.nodes_ranks, bench.world
    found = []

    def add(name, ranks, between, all_of):
        own = None
        for members in all_of:
            group = dist.new_group(members)
            own = group if bench.rank in members else own
        found.append((name, ranks, between, own))

    within = [size for size in (2, 4, 8, 16) if size < local and local % size == 0] + ([local] if local > 1 else [])
    for size in within:
        add(f"{size} ranks of a node", size, False, [list(range(first, first + size)) for first in range(0, world, size)])
    nodes = world // local
    if nodes > 1:
        add(f"{nodes} nodes", nodes, True, [list(range(first, world, local)) for first in range(local)])
    return found


def collectives(bench):
    """Seconds of all-reduces by level: (between nodes, ranks, bytes, seconds). Others are printed."""
    found = []
    dtype = torch.float32
    for name, ranks, between, group in groups(bench):
        for size in GPU_BYTES if bench.gpu else CORE_BYTES:
            elements = max(size // 4 // ranks * ranks, ranks)
            whole, part = (torch.zeros(count, dtype=dtype, device=bench.device) for count in (elements, elements // ranks))
            calls = [("all-reduce", lambda: dist.all_reduce(whole, group=group)), ("all-gather", lambda: dist.all_gather_into_tensor(whole, part, group=group))]
            if bench.gpu:
                calls.append(("reduce-scatter", lambda: dist.reduce_scatter_tensor(part, whole, group=group)))
                calls.append(("all-to-all", lambda: dist.all_to_all_single(torch.empty_like(whole), whole, group=group)))
            for kind, call in calls:
                seconds = bench.collective(f"{kind}, {name}, {size} B", call, group is not None, size)
                if kind == "all-reduce":
                    found.append((between, ranks, elements * 4, seconds))
    return found


def messages(bench):
    """Seconds of messages by level: (between nodes, bytes, seconds). A message goes there and back."""
    found = []
    for between, peer in [(False, 1), (True, bench.nodes_ranks)]:
        if bench.nodes_ranks < 2 and not between or bench.world // bench.nodes_ranks < 2 and between:
            continue
        for size in GPU_BYTES if bench.gpu else CORE_BYTES:
            tensor = torch.zeros(size, dtype=torch.uint8, device=bench.device)

            def call():
                if bench.rank == 0:
                    dist.send(tensor, peer)
                    dist.recv(tensor, peer)
                else:
                    dist.recv(tensor, 0)
                    dist.send(tensor, 0)

            where = "between nodes" if between else "within a node"
            seconds = bench.collective(f"message there and back, {where}, {size} B", call, bench.rank in (0, peer), 2 * size)
            found.append((between, size, seconds / 2))
    return found


def line(points):
    """The line y = zero + slope x of least relative errors, both at least 0."""
    points = list(points)
    a, b, c, d, e = (sum(term(x, y) for x, y in points) for term in (
        lambda x, y: 1 / y**2, lambda x, y: x / y**2, lambda x, y: x**2 / y**2, lambda x, y: 1 / y, lambda x, y: x / y))
    determinant = a * c - b * b
    if determinant > 1e-12 * a * c:
        zero, slope = (d * c - e * b) / determinant, (a * e - b * d) / determinant
        if zero >= 0 and slope >= 0:
            return zero, slope
        if slope < 0:
            return d / a, 0.0
    return 0.0, e / c


def own(seconds, least):
    """Seconds of a kernel without its start, at least half of them."""
    return max(seconds - least, seconds / 2)


def fit_products(timed, device, tiles):
    """The depth of tiles and the share of the peak with which the cost model is off least, by squares of logarithms."""
    peak, width, found = timed

    def model(shape, rate, depth):
        m, n, k = shape
        moved = (m * k + k * n) * width + m * n * max(2, min(4, width))
        best = math.inf
        for rows, columns, share in [*tiles, *((columns, rows, share) for rows, columns, share in tiles)]:
            for split in SPLITS:
                waves = math.ceil(split * math.ceil(m / rows) * math.ceil(n / columns) / device["sms"])
                joined = m * n * 8 * split / device["bandwidth"] if split > 1 else 0
                best = min(best, waves * 2 * rows * columns * (k / split + depth) / (rate / device["sms"] * share) + joined)
        return device["start"] + max(best, moved / device["bandwidth"])

    def error(share, depth):
        return sum(math.log(model(shape, peak * share, depth) / seconds) ** 2 for shape, seconds in found)

    def fitted(depth):
        low, high, part = math.log(0.01), 0.0, (math.sqrt(5) - 1) / 2
        for _ in range(30):
            left, right = high - part * (high - low), low + part * (high - low)
            low, high = (low, right) if error(math.exp(left), depth) <= error(math.exp(right), depth) else (left, high)
        share = math.exp((low + high) / 2)
        return error(share, depth), depth, share

    depths = [0.0, *(2.0 ** (power / 2) for power in range(0, 25))]
    return min(fitted(depth) for depth in depths)[1:]


def fit_attention(found, peak, device, backward):
    """Shares of the peak by head size, and the number of keys at which half of a share is reached."""
    def point(head, length, heads, seconds):
        looked_at = (length + 1) / 2
        flops = heads * length * looked_at * head * (10 if backward else 4)
        waves = heads * math.ceil(length / 128) / device["sms"]
        busy = waves if waves < 0.5 else waves / (waves + 0.5)
        return 1 / looked_at, own(seconds, device["start"]) * peak / flops * busy

    by_head = {}
    for head, length, heads, *times in found:
        by_head.setdefault(head, []).append(point(head, length, heads, times[backward]))
    halves = []
    for points in by_head.values():
        zero, slope = line(points)
        halves.append(min(slope / zero, 1e5) if zero > 0 else 1e5)

    def share(points, half):
        parts = [(1 + half * x) / y for x, y in points]
        return sum(part**2 for part in parts) / sum(parts)

    # Where times hardly level off with the length, endless sequences would run above the peak.
    half = sorted(halves)[len(halves) // 2]
    while half > 1 and any(share(points, half) > 1 for points in by_head.values()):
        half *= 0.95
    return [(head, min(1.0, max(1e-4, share(points, half)))) for head, points in sorted(by_head.items())], half


def fit_link(sums, sent, cores):
    """The figures of a link. An all-reduce of b bytes over n ranks takes start + 2 (n - 1) (latency + b/n / rate(b/n)). On fewer cores than
    ranks the times are those of a core's work."""
    def hops(ranks):
        return 2 * (ranks - 1)

    def work(ranks, seconds):
        return seconds * min(cores, ranks) / ranks if cores else seconds

    least = min(size for _, size, _ in sums)
    first, latency = line([(hops(ranks), work(ranks, seconds)) for ranks, size, seconds in sums if size <= 2 * least])
    rates = {}
    for ranks, size, seconds in sums:
        if size > 2 * least:
            seconds = work(ranks, seconds)
            moved = hops(ranks) * size / ranks
            rate = moved / max(seconds - first - hops(ranks) * latency, seconds / 10)
            rates.setdefault(size.bit_length(), []).append((size / ranks, rate))
    mean = statistics.geometric_mean
    points = [(mean(size for size, _ in all_of), mean(rate for _, rate in all_of)) for _, all_of in sorted(rates.items())]
    bandwidth = max(rate for _, rate in points)
    _, slope = line([(size, work(2, seconds) if cores else seconds) for size, seconds in sent]) if sent else (0, 0)
    pair = min(1 / slope, 1e14) if slope > 0 else bandwidth
    shares = [(size, max(1e-4, rate / bandwidth)) for size, rate in points]
    return {"start": first, "latency": latency, "bandwidth": min(bandwidth, 1e14), "pair": pair, "share": shares}


def number(value):
    if isinstance(value, float) and not math.isfinite(value):
        raise SystemExit("a measurement has failed: its figure is no number, so that there is no cluster file")
    return f"{value:.3e}" if isinstance(value, float) else str(value)


def table(points):
    return "[" + ", ".join("[" + ", ".join(number(float(value)) for value in point) + "]" for point in points) + "]"


def file_of(bench, measured):
    """The text of the cluster file."""
    copied, added = measured["memory"]
    moved = max(copied, added)
    device = {"sms": 1, "start": measured["start"], "bandwidth": added}
    name, memory_bytes = "one core", measured["memory_bytes"]
    if bench.gpu:
        properties = torch.cuda.get_device_properties(bench.device)
        device["sms"], name = properties.multi_processor_count, properties.name
    tiles = GPU_TILES if bench.gpu else CORE_TILES
    fitted, peaks = {}, {}
    for key, (width, found) in measured["products"].items():
        peaks[key] = max(2 * m * n * k / seconds for (m, n, k), seconds in found)
        fitted[key] = fit_products((peaks[key], width, found), device, tiles)
    rows = [
        f"# Measured by PyTorch {torch.__version__} on {bench.world} processes, {bench.nodes_ranks} a node.",
        f'name = "{"gpu" if bench.gpu else "cores"}-{bench.world}"',
        f'about = "{bench.world} x {name}, measured with PyTorch"',
    ]
    if not bench.gpu:
        rows += [f"cores = {bench.cores}", f"shared_memory = {memory_bytes * bench.cores}"]
    rows += [
        "", "[device]", f'name = "{name}"', f"flops_f32 = {number(peaks['f32'])}", f"flops_bf16 = {number(peaks['half'])}",
        f"memory_bandwidth = {number(moved)}", f"memory_share = {number(min(1.0, added / moved))}",
        *([f"memory_share_half = {number(min(1.0, measured['memory_half'][1] / moved))}"] if measured["memory_half"] else []), f"memory = {memory_bytes}",
        f"host_bandwidth = {number(measured['host'])}", f"sms = {device['sms']}", f"start = {number(min(device['start'], 1e-3))}",
        "", "[device.matmul]", f"f32 = {number(fitted['f32'][1])}", f"half = {number(fitted['half'][1])}",
        f"depth = {number(fitted['half'][0])}", f"depth_f32 = {number(fitted['f32'][0])}", f"tiles = {table(tiles)}",
    ]
    for key, name in (("half", "attention"), ("f32", "attention_f32")):
        ways = [fit_attention(measured["attention"][key], peaks[key], device, backward) for backward in (0, 1)]
        rows += ["", f"[device.{name}.flash2]"]
        rows += [f"{way} = {table(points)}" for way, (points, _) in zip(("forward", "backward"), ways)]
        rows.append(f"half = [{number(ways[0][1])}, {number(ways[1][1])}]")
    levels = [("node", False), ("network", True)]
    cores = 0 if bench.gpu else bench.cores
    found = []
    for level, between in levels:
        sums = [(ranks, size, seconds) for there, ranks, size, seconds in measured["collectives"] if there == between]
        if sums:
            sent = [(size, seconds) for there, size, seconds in measured["messages"] if there == between]
            found.append((level, fit_link(sums, sent, cores)))
    for at, (level, link) in enumerate(found):
        rows += ["", "[[links]]", f'name = "{level}"']
        if at + 1 < len(found):
            rows.append(f"joins = {bench.nodes_ranks}")
        rows += [f"{key} = {number(link[key])}" for key in ("bandwidth", "latency", "start", "pair")]
        rows.append(f"share = {table(link['share'])}")
    rows += ["", "# What was measured: lower quartile, median, spread, rate of the quartile."]
    rows += [
        f"# {what}: {seconds:.4g} s, median {median:.4g} s, +-{100 * spread:.0f} %, {rate}" for what, seconds, median, spread, rate in bench.rows
    ]
    return "\n".join(rows) + "\n"


def bytes_of_device(bench):
    if bench.gpu:
        return torch.cuda.mem_get_info(bench.device)[0]
    with open("/proc/meminfo") as file:
        free = next(int(row.split()[1]) * 1024 for row in file if row.startswith("MemAvailable"))
    return free // bench.cores


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="the cluster file to write")
    parser.add_argument("--quick", action="store_true", help="few and short rounds, to try the program: the figures mean little")
    asked = parser.parse_args()
    if "RANK" not in os.environ or int(os.environ["WORLD_SIZE"]) < 2:
        raise SystemExit("start two processes or more: torchrun --nproc-per-node 2 THIS_FILE cluster.toml")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    bench = Bench(asked.quick)
    if not bench.gpu and bench.world > bench.nodes_ranks:
        raise SystemExit("cores of several hosts are no cluster file: run it on one host, or on GPUs")
    memory_bytes = min(bench.gathered(bytes_of_device(bench)))
    kinds = [("f32", torch.float32), ("half", torch.bfloat16)]
    measured = {
        "memory_bytes": memory_bytes,
        "products": {key: (torch.finfo(dtype).bits // 8, products(bench, dtype)) for key, dtype in kinds},
        "start": start(bench),
        "attention": {key: attention(bench, dtype) for key, dtype in kinds},
        # GPUs add as many bytes per second in one format as in the other.
        "memory": memory(bench, torch.bfloat16 if bench.gpu else torch.float32),
        "memory_half": None if bench.gpu else memory(bench, torch.bfloat16),
        "host": host(bench),
        "collectives": collectives(bench),
        "messages": messages(bench),
    }
    if bench.rank == 0:
        with open(asked.file, "w") as file:
            file.write(file_of(bench, measured))
        print(f"{asked.file}: check it with `meshwright clusters {asked.file}`")
    dist.barrier(group=bench.talk)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
