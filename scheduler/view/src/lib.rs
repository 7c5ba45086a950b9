//! Schedules for people and for other tools: reports, drawings, import and export.
//!
//! [`report::report`] answers a [`report::ScheduleRequest`]: it makes, checks and simulates a schedule, and returns its figures
//! and timeline. [`grid::grid`] draws a timeline as text; [`draw::Picture`] is the input of SVG, HTML and trace files.
//! [`interop`] reads schedules that other tools wrote and writes them in their form. Everything here uses the public interface
//! of `scheduler` and decides no order. Start reading at `report.rs`.

mod codes;
pub mod draw;
pub mod grid;
pub mod interop;
pub mod report;
