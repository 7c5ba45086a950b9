//! What every layer may need of the system and no layer owns: files that are read with a limit and written atomically
//! ([`files`]), a parallel map over all cores ([`parallel`]), computations that are cached by their keys ([`query`]),
//! numbers as people read and write them ([`units`]), and aligned columns ([`table`]).

pub mod files;
pub mod parallel;
pub mod query;
pub mod table;
pub mod units;
