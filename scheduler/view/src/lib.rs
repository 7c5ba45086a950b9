//! Schedules for people and for other tools: reports, drawings, import and export.
//!
//! The crate is above `scheduler`, uses its public interface alone, and decides no order.
//!
//! [`report::report`] answers a [`report::ScheduleRequest`]: it makes, checks and simulates a schedule, and returns its figures
//! and timeline. [`grid::grid`] draws a timeline as text; [`draw::Picture`] is the input of SVG, HTML and trace files.
//! [`interop`] reads schedules that other tools wrote and writes them in their form. Start reading at `report.rs`.
//!
//! ```
//! use meshwright_view::grid::grid;
//! use meshwright_view::report::{ScheduleRequest, report};
//!
//! let request = ScheduleRequest { kind: "gpipe".to_string(), stages: 2, microbatches: 2, ..ScheduleRequest::default() };
//! let (report, timeline) = report(&request)?;
//! assert_eq!((report.makespan, report.bubble), (9.0, 1.0 / 3.0));
//! assert!(grid(&timeline, 100, false).starts_with("rank 0  F0"));
//! # Ok::<(), meshwright_view::report::Error>(())
//! ```

mod codes;
pub mod draw;
pub mod grid;
pub mod interop;
pub mod report;
