//! How large a compilation may be. Each bound lies far above what is trained today, and low enough that no count overflows
//! and no list outgrows memory: who exceeds one has made a slip of the hand, and is told.

/// Devices of a mesh. The largest published runs use some 10^5.
pub const DEVICES: u64 = 1 << 20;

/// Sequences of a step, all ranks together. The largest published batches have some 10^5.
pub const SEQUENCES: u64 = 1 << 32;

/// Elements of a tensor. The largest parameter of Llama 3.1 405B has 2^31; bytes of many tensors still add up in 64 bits.
pub const ELEMENTS: u64 = 1 << 48;

/// Elements of a parameter array, and runs of blocks in a model. Cutting takes time stages x runs^2; Llama 3.1 405B has
/// 128 runs.
pub const RUNS: u32 = 1 << 10;

/// Runs of blocks times micro-batches of a step: the length of all rows of a program together.
pub const ACTIONS: u64 = 1 << 16;

/// Words, signs and comments of a text, a comment counted as some. The program of 2^16 actions has half as many; the lists
/// of a parser stay below 1 GiB.
pub const TOKENS: usize = 1 << 25;

/// Operators and parentheses of one rank expression, which bounds the depth of its tree.
pub const OPERATORS: u32 = 64;
