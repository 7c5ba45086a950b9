"""Text to train on, and the batches that `meshwright train` draws from it.

The text is generated, so that it is the same everywhere. Splitting and drawing follow `runtime/data/src`: chunks of 4096 bytes,
one of them held out, windows of the rest in the order of a Feistel network.
"""

MASK = (1 << 64) - 1
CHUNK = 4096
END_OF_DOCUMENT = 256
BYTES = 1 << 20
# Holds out one chunk of the text, the least that a run accepts.
VALID_FRACTION = 0.001
SEED = 0


def mix(z):
    """One step of SplitMix64 from state `z`."""
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def text(count=BYTES):
    """Lines of made-up words, frequent and rare ones: the logarithm of a word's rank is uniform."""
    words = [word(number) for number in range(2000)]
    out, size, number = [], 0, 0
    while size < count:
        number += 1
        rank = int(len(words) ** (mix(number) / 2.0**64)) - 1
        out.append(words[rank] + ("\n" if number % 12 == 0 else " "))
        size += len(out[-1])
    return "".join(out).encode()[:count]


def word(number):
    """A word of two to nine letters."""
    state = mix(number + (1 << 32))
    return "".join(chr(97 + mix(state + place) % 26) for place in range(2 + state % 8))


class Sampler:
    """Training batches of a text of one document."""

    def __init__(self, document, seq, seed=SEED):
        self.seq, self.seed = seq, seed
        self.segments = segments(document)
        self.windows = (sum(len(tokens) for _, tokens in self.segments) - 1) // seq

    def batch(self, step, sequences):
        """Tokens and labels of a step, which is counted from 1: a list of each for every sequence."""
        first = (step - 1) * sequences
        rows = [self.row(self.window(sample)) for sample in range(first, first + sequences)]
        return [row[:-1] for row in rows], [row[1:] for row in rows]

    def window(self, sample):
        """Number of the window that a sample of the run is."""
        epoch, place = divmod(sample, self.windows)
        return permute(place, self.windows, mix((mix(self.seed) + epoch) & MASK))

    def row(self, window):
        """The tokens of a window and the label of its last. Peers have no masks, so that a row has one segment."""
        first = window * self.seq
        for start, tokens in self.segments:
            if start <= first and first + self.seq < start + len(tokens):
                return tokens[first - start : first - start + self.seq + 1]
        raise ValueError(f"window {window} crosses the held-out chunk; draw fewer steps, or change SEED of batches.py")


def segments(document):
    """Starts and tokens of the runs of training chunks. Held out is the chunk with the least hash."""
    chunks = [document[at : at + CHUNK] for at in range(0, len(document), CHUNK)]
    held = min(range(len(chunks)), key=lambda number: fingerprint(chunks[number]))
    before, after = document[: held * CHUNK], document[(held + 1) * CHUNK :]
    parts = [[*before], [*after, END_OF_DOCUMENT] if after else []]
    found, start = [], 0
    for tokens in filter(None, parts):
        found.append((start, tokens))
        start += len(tokens)
    return found


def fingerprint(chunk):
    """FNV-1a of 64 bits, scattered."""
    state = 0xCBF29CE484222325
    for byte in chunk:
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return mix(state)


def permute(i, n, key):
    """The place of `i` in the permutation of `0..n` that `key` names."""
    half = ((n - 1).bit_length() + 1) // 2
    low = (1 << half) - 1
    while True:
        left, right = i >> half, i & low
        for turn in range(6):
            scattered = mix(mix((key + turn) & MASK) ^ right) & low
            left, right = right, left ^ scattered
        i = left << half | right
        if i < n:
            return i
