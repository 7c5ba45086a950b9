//! The command line and the library as their users see them: cases, help, documents and examples.

mod cases;
mod catalogue;
mod class_check;
mod cli;
mod docs;
#[path = "../support/driver.rs"]
mod driver;
mod examples;
mod exported;
mod help;
mod library;
mod log;
