//! Kernels that move and combine blocks of tensors between the memories of ranks.

use super::kernel::FUNCTIONS;
use super::spell::spelling;
use super::written::HEAD;
use crate::scalar::Element;

/// The most dims of a block.
pub const DIMS: usize = 12;

/// The most ranks whose blocks are combined. Their addresses are a kernel's argument: half of the 4096 bytes that all have (CUDA C++
/// Programming Guide, "Function Parameters").
pub const PEERS: usize = 256;

/// The widest run that a thread loads at once, in bytes.
pub const WIDEST: usize = 16;

/// How blocks that fall on the same place are combined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Combine {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
}

/// The name of the kernel of [`moving`]. Its arguments are the addresses of source and target, the block, and its runs. The block has
/// `DIMS` sizes, strides in the source, and strides in the target, all in runs.
pub const MOVE: &str = "move_block";

/// The name of the kernel of [`moving`] that moves the filled rows of chunks, and makes the others zeros. The arguments of [`MOVE`] are
/// followed by the address of the numbers of filled rows, and by the start of the block in the target, a chunk and a row, all in runs.
pub const MOVE_FILLED: &str = "move_filled";

/// The name of the kernel of [`moving`] that moves pieces of memory. Its arguments are the address of a table and the number of pieces, each of
/// which has a row: the addresses of source and target, and its runs.
pub const MOVE_PIECES: &str = "move_pieces";

/// The name of the kernel of [`combining`]. Its arguments are the addresses of the `PEERS` sources, that of the target, the block, its runs,
/// and the number of sources.
pub const COMBINE: &str = "combine_ranks";

/// The text that moves a block in runs of `bytes` bytes: 1, 2, 4, 8 or 16.
pub fn moving(bytes: usize) -> String {
    let (scalar, width) = match bytes {
        1 => ("unsigned char", 1),
        2 => ("unsigned short", 1),
        _ => ("unsigned int", bytes / 4),
    };
    text(scalar, "", "", "unsigned int", "", width, bytes)
}

/// The text that combines blocks of elements, `width` of them at once.
pub fn combining(element: Element, combine: Combine, width: usize) -> String {
    let spelling = spelling(element);
    let [load, store] = ["load", "store"].map(|name| format!("{name}_{}", spelling.suffix));
    // As the processor does: a sum in the type's own arithmetic, the larger of two, of which one that is no number loses.
    let combine = match (combine, element) {
        (Combine::Sum, _) => "((a) + (b))",
        (Combine::Max, Element::Bf16 | Element::F16 | Element::F8E4M3 | Element::F8E5M2) => "fmaxf(a, b)",
        (Combine::Max, Element::F32 | Element::I32) => "((b) > (a) ? (b) : (a))",
    };
    let bytes = width * element.bytes();
    text(spelling.scalar, &load, &store, spelling.number, combine, width, bytes)
}

fn text(scalar: &str, load: &str, store: &str, number: &str, combine: &str, width: usize, bytes: usize) -> String {
    let combine = if combine.is_empty() { "(b)" } else { combine };
    format!(
        "{FUNCTIONS}\n#define T_X {scalar}\n#define LOAD_X {load}\n#define STORE_X {store}\n#define NUMBER {number}\n\
         #define COMBINE(a, b) {combine}\n#define WIDTH {width}\n#define BYTES {bytes}\n#define DIMS {DIMS}\n\
         #define PEERS {PEERS}\n{HEAD}{}",
        include_str!("written/exchange.cu")
    )
}
