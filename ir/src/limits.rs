//! Upper bounds on the sizes of a compilation. Each bound is far above the largest published models, and low enough that no
//! size computation overflows and no list exceeds memory. Larger values are rejected as typing errors.

/// Devices of a mesh. The largest published runs use some 10^5.
pub const DEVICES: u64 = 1 << 20;

/// Sequences of a step, all ranks together. The largest published batches have some 10^5.
pub const SEQUENCES: u64 = 1 << 32;

/// Elements of a tensor. The largest parameter of Llama 3.1 405B has 2^31; bytes of many tensors still add up in 64 bits.
pub const ELEMENTS: u64 = 1 << 48;

/// Elements of a parameter array, and block instances of a model. Partitioning into stages takes time stages x runs^2;
/// Llama 3.1 405B has 128 runs.
pub const RUNS: u32 = 1 << 10;

/// Block instances times micro-batches of a step: the total length of the rows of a program.
pub const ACTIONS: u64 = 1 << 16;

/// Tokens and comments of a text; a comment counts as several tokens. The program of 2^16 actions has half as many; the lists
/// of a parser stay below 1 GiB.
pub const TOKENS: usize = 1 << 25;

/// Operators and parentheses of one rank expression, which bounds the depth of its tree.
pub const OPERATORS: u32 = 64;
