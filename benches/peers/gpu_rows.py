"""Work that Meshwright and PyTorch do on a GPU: rows of `meshwright gpu-check`, and what PyTorch does for the same."""

import dataclasses
from dataclasses import dataclass

# The sizes of gpu-check: rows of the large matrices, and elements of the large tensors.
MATRIX, ELEMENTS = 4096, 1 << 24
HEAD = 128

# Names of the backends of `torch.nn.attention.SDPBackend`.
BACKENDS = ["FLASH_ATTENTION", "CUDNN_ATTENTION"]

# Small sizes, and a small model, for a trial of the peer without a GPU.
SMALL = {
    "product": (64, 48, 80),
    "attention": (32, 2, 16),
    "attention_grad": (32, 2, 16),
    "copy": (4096,),
    "step": (2, 32, "tiny-llama"),
}


@dataclass(frozen=True)
class Row:
    """A row of `gpu-check` by its check and sizes, and the work of a peer: the name of a function of `gpu_peer.py`, and its sizes."""

    check: str
    shape: str
    unit: str
    work: str
    sizes: tuple
    # The peer's ways to do it.
    ways: tuple = ("default",)

    @property
    def name(self):
        """What `--only` selects by and the table shows."""
        return f"{self.check}, {self.shape}"

    def small(self):
        """The same work on small sizes."""
        sizes = SMALL[self.work]
        return dataclasses.replace(self, shape=" x ".join(map(str, sizes)), sizes=sizes)

    def amount(self):
        """FLOPs or bytes of the work, as gpu-check counts them: of causal attention the pairs of which one sees the other."""
        if self.work == "product":
            m, k, n = self.sizes
            return 2 * m * k * n
        if self.work == "copy":
            return 2 * self.sizes[0]
        if self.work in ("attention", "attention_grad"):
            s, heads, d = self.sizes
            return s * (s + 1) * heads * (5 * d if self.work == "attention_grad" else 2 * d)
        return None


def product(m, k, n):
    """A matrix product in bf16."""
    return Row("A B bf16", f"{m} x {k} x {n}", "FLOP/s", "product", (m, k, n))


def attention(check, work):
    """Causal attention in bf16, or its gradient."""
    heads = MATRIX // HEAD
    shape = f"timed on {MATRIX} x {heads} x {HEAD}"
    return Row(check, shape, "FLOP/s", work, (MATRIX, heads, HEAD), tuple(BACKENDS))


ROWS = [
    product(MATRIX, MATRIX, MATRIX),
    product(2 * MATRIX, MATRIX, MATRIX + 1),
    attention("attention bf16", "attention"),
    attention("attention's gradient bf16", "attention_grad"),
    Row("device to device", f"{4 * ELEMENTS} B", "B/s", "copy", (4 * ELEMENTS,)),
    Row("step, Llama 1B, bf16", "4 sequences of 2048", "FLOP/s", "step", (4, 2048, "llama-1b"), ("compiled",)),
]
