//! Kernels that are written by hand, for element types and sizes that are defined before their text.
//!
//! A kernel's arguments are its operands, its results, and the results to which it adds. If it is random, the address of the seed and the
//! step, the micro-batch, and the index follow. A grid of any size does all the work, and the same bits come of it.

use super::kernel::{FUNCTIONS, TEAMS};
use super::spell::{literal, spelling};
use super::tables::Tables;
use crate::scalar::{Element, Strides};
use std::fmt::Write;

/// Threads of a block, unless a text has its own number.
pub const BLOCK: usize = 256;

/// The text that all others share.
pub(super) const HEAD: &str = include_str!("written/head.cu");

/// A kernel that is ready to be compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The CUDA C text.
    pub source: String,
    /// The name of the kernel in it.
    pub name: &'static str,
    /// Blocks that have work.
    pub blocks: usize,
    /// Threads of a block.
    pub threads: usize,
    /// Bytes of dynamic shared memory of a block.
    pub shared: usize,
    /// True if a product and a sum may round once: results are then not those of the processor to the bit.
    pub contracts: bool,
    /// True if it draws random numbers.
    pub is_random: bool,
}

/// Definitions before a text.
#[derive(Default)]
pub struct Definitions {
    tables: Tables,
    lines: String,
}

impl Definitions {
    /// None.
    pub fn new() -> Definitions {
        Definitions::default()
    }

    /// The element type of a tensor: the type `T_NAME`, and the functions `LOAD_NAME` and `STORE_NAME` from it and to it.
    #[must_use]
    pub fn tensor(mut self, name: &str, element: Element) -> Definitions {
        let spelling = spelling(element);
        let lines = [("T", spelling.scalar.to_string()), ("LOAD", format!("load_{}", spelling.suffix))];
        for (prefix, meaning) in lines.into_iter().chain([("STORE", format!("store_{}", spelling.suffix))]) {
            let _ = writeln!(self.lines, "#define {prefix}_{name} {meaning}");
        }
        self
    }

    /// An unsigned integer.
    #[must_use]
    pub fn size(mut self, name: &str, size: usize) -> Definitions {
        let _ = writeln!(self.lines, "#define {name} {size}ull");
        self
    }

    /// A signed integer.
    #[must_use]
    pub fn integer(mut self, name: &str, integer: i64) -> Definitions {
        let _ = writeln!(self.lines, "#define {name} ({integer}ll)");
        self
    }

    /// A number in f32.
    #[must_use]
    pub fn number(mut self, name: &str, number: f32) -> Definitions {
        let _ = writeln!(self.lines, "#define {name} ({})", literal(number));
        self
    }

    /// A finite number in f64.
    #[must_use]
    pub fn double(mut self, name: &str, number: f64) -> Definitions {
        let _ = writeln!(self.lines, "#define {name} ({number:?})");
        self
    }

    /// A name for another one.
    #[must_use]
    pub fn name(mut self, name: &str, meaning: &str) -> Definitions {
        let _ = writeln!(self.lines, "#define {name} {meaning}");
        self
    }

    /// A name that is defined if something holds.
    #[must_use]
    pub fn flag(mut self, name: &str, holds: bool) -> Definitions {
        if holds {
            let _ = writeln!(self.lines, "#define {name}");
        }
        self
    }

    /// The function from an index of a tensor to one of another.
    #[must_use]
    pub fn place(mut self, name: &str, strides: &Strides) -> Definitions {
        let mut strides = strides.merged();
        if strides.dims.is_empty() {
            strides.dims.push((1, 0));
        }
        let function = self.tables.place(&strides);
        let _ = writeln!(self.lines, "#define {name} {function}");
        self
    }

    /// The key of the random numbers of a path, `DROPOUT_KEY`, and the line that declares it; without a path it is 0.
    #[must_use]
    pub fn key(mut self, path: Option<&String>) -> Definitions {
        let (name, line) = path.map_or(("0ull".to_string(), None), |path| self.tables.key(path));
        let _ = writeln!(self.lines, "#define DECLARE_KEY {}\n#define DROPOUT_KEY {name}", line.unwrap_or_default());
        self
    }

    /// The kernel of a name in a text behind these, for a number of blocks.
    pub fn kernel(self, text: &str, name: &'static str, blocks: usize) -> Written {
        let is_random = self.lines.contains("DROPOUT_KEY");
        let source = format!("{FUNCTIONS}{TEAMS}\n{}{}\n{HEAD}{text}", self.tables.text(), self.lines);
        Written { source, name, blocks, threads: BLOCK, shared: 0, contracts: false, is_random }
    }
}

/// The texts.
pub mod texts {
    /// The text of `adamw`, which leaves a copy of the weights where `COPIES` is defined.
    pub const ADAMW: &str = concat!(include_str!("written/copy.cu"), include_str!("written/adamw.cu"));
    /// The text of `sgd`, `sgd_momentum` and `sgd_nesterov`, with copies alike.
    pub const SGD: &str = concat!(include_str!("written/copy.cu"), include_str!("written/sgd.cu"));
    /// The text of `square_chunks` and `square_sum`.
    pub const SQUARES: &str = include_str!("written/squares.cu");
    /// The text of `absmax`.
    pub const ABSMAX: &str = include_str!("written/absmax.cu");
    /// The text of `exponent_chunks` and `exponent_counts`.
    pub const EXPONENTS: &str = include_str!("written/exponents.cu");
    /// The text of `scale_for` and `delayed_scale`.
    pub const SCALES: &str = include_str!("written/scales.cu");
    /// The text of `age`.
    pub const AGES: &str = include_str!("written/ages.cu");
    /// The text of `put`.
    pub const PUT: &str = include_str!("written/put.cu");
    /// The text of `slide` and `slide_from`.
    pub const SLIDE: &str = include_str!("written/slide.cu");
    /// The text of `gather`.
    pub const GATHER: &str = include_str!("written/gather.cu");
    /// The text of `fold`.
    pub const FOLD: &str = include_str!("written/fold.cu");
    /// The text of `count_picks`, `offset_picks`, `base_picks`, `order_picks` and `add_picks`.
    pub const PICKS: &str = concat!(include_str!("written/picks.cu"), "\n", include_str!("written/add_picks.cu"));
    /// The text of `top_k`.
    pub const TOP_K: &str = include_str!("written/top_k.cu");
    /// The text of `top_k_grad`.
    pub const TOP_K_GRAD: &str = include_str!("written/top_k_grad.cu");
    /// The text of `count_picks`, `offset_picks` and `deal`.
    pub const DEAL: &str = concat!(include_str!("written/picks.cu"), "\n", include_str!("written/deal.cu"));
    /// The text of `dispatch`.
    pub const DISPATCH: &str = include_str!("written/dispatch.cu");
    /// The text of `tally`.
    pub const TALLY: &str = include_str!("written/tally.cu");
    /// The text of `combine`.
    pub const COMBINE: &str = include_str!("written/combine.cu");
    /// The text of `combine_dw`.
    pub const COMBINE_DW: &str = include_str!("written/combine_dw.cu");
    /// The functions of single instructions.
    pub const INSTRUCTIONS: &str = include_str!("instructions.cu");
    /// The text of the kernels that try single instructions.
    pub const TRIALS: &str = concat!(include_str!("instructions.cu"), include_str!("written/trials.cu"));
    /// The text of `attention`.
    pub const ATTENTION: &str =
        concat!(include_str!("written/attention_head.cu"), include_str!("written/attention.cu"));
    /// The text of `attention_bounds` and `attention_tiles`.
    pub const ATTENTION_TILES: &str = concat!(
        include_str!("instructions.cu"),
        include_str!("written/attention_head.cu"),
        include_str!("written/attention_tiles.cu"),
        include_str!("written/attention_tiles_forward.cu")
    );
    /// The text of `attention_bounds`, `attention_sums`, `attention_tiles_dq` and `attention_tiles_dkv`.
    pub const ATTENTION_TILES_GRAD: &str = concat!(
        include_str!("instructions.cu"),
        include_str!("written/attention_head.cu"),
        include_str!("written/attention_tiles.cu"),
        include_str!("written/attention_tiles_grad.cu")
    );
    /// The text of `attention_delta`, `attention_dq` and `attention_dkv`.
    pub const ATTENTION_GRAD: &str =
        concat!(include_str!("written/attention_head.cu"), include_str!("written/attention_grad.cu"));
}
