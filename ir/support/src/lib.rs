//! Functions that every layer may need of the system and no layer owns.
//!
//! The crate is part of the bottom layer of Meshwright: it imports no other crate of the workspace.
//!
//! - [`files`]: files that are read with a limit and written atomically.
//! - [`one_line`]: foreign text on one line.
//! - [`parallel`]: a parallel map over all cores.
//! - [`positioned`]: files that are read by place.
//! - [`query`]: computations that are cached by their keys.
//! - [`shell`]: words of suggested commands.
//! - [`stopwatch`]: time that passes.
//! - [`quantities`] and [`units`]: numbers as people write and read them. [`table`]: aligned columns.
//!
//! ```
//! use meshwright_support::query::Query;
//! use meshwright_support::table::table;
//! use meshwright_support::quantities::{bytes_of, count_of};
//! use meshwright_support::units::{count, time};
//!
//! assert_eq!((count(8.03e9).as_str(), time(2.41e-3).as_str()), ("8.03B", "2.41 ms"));
//! assert_eq!((count_of("8k"), bytes_of("8GiB")), (Ok(8192), Ok(8 << 30)));
//! assert_eq!(table(["model", "size"], &[["gpt2".to_string(), count(124e6)]]), "model  size\ngpt2   124M\n");
//!
//! // A query computes the answer of each key once, from its database and the key.
//! let lengths: Query<Vec<String>, usize, usize> = Query::new(|words, &at| words[at].len());
//! assert_eq!(lengths.get(&vec!["mesh".to_string()], &0), 4);
//! ```

pub mod files;
pub mod one_line;
pub mod parallel;
pub mod positioned;
pub mod quantities;
pub mod query;
pub mod shell;
pub mod stopwatch;
pub mod table;
pub mod units;
