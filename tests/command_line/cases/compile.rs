//! The command `compile ARGS` of case files: what `meshwright compile` prints, without a process.

use crate::driver::Case;
use meshwright::compiler::compile::{CompileRequest, compile_source};
use meshwright::compiler::error::Error;
use meshwright::compiler::model_source::ModelSource;
use std::str::FromStr;

/// The program or dump, or the error message; `None` if the command is another.
///
/// # Panics
/// An argument is not one of the binary's, or has no value.
pub(crate) fn answer(case: &Case<'_>) -> Option<String> {
    let mut words = case.command.split_whitespace();
    if words.next() != Some("compile") {
        return None;
    }
    let (mut order, mut stop_after) = (CompileRequest::default(), None);
    while let Some(flag) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{}: `{flag}` needs a value", case.file));
        match flag {
            "--parallel" => order.parallel = value.to_string(),
            "--stop-after" => stop_after = Some(value),
            "--sp" => order.sp = Some(read(case, flag, value)),
            "--zero" => order.zero = Some(read(case, flag, value)),
            "--schedule" => order.schedule = Some(value.to_string()),
            "--precision" => order.precision = value.to_string(),
            "--shard" => order.shard = value.to_string(),
            "--memory" => order.memory = Some(read(case, flag, value)),
            "--global-batch" => order.global_batch = Some(read(case, flag, value)),
            _ => panic!("{}: `compile` has no `{flag}` here", case.file),
        }
    }
    Some(compiled(case, &order, stop_after).unwrap_or_else(|error| error.to_string()))
}

fn compiled(case: &Case<'_>, order: &CompileRequest, stop_after: Option<&str>) -> Result<String, Error> {
    let (from, source) = (case.file.to_string(), case.input.to_string());
    let source = match ir::text::parse(case.input) {
        Ok(file) => ModelSource::Text { from, source, file: Box::new(file) },
        Err(diagnostics) => return Err(Error::Diagnostics { file: from, source, diagnostics }),
    };
    let file = compile_source(&source, order, stop_after, &mut |_, _| {})?;
    let printed = ir::text::print(&file);
    crate::driver::round_trip(&printed).unwrap_or_else(|why| panic!("{}: the answer's round trip: {why}", case.file));
    Ok(printed)
}

fn read<T: FromStr>(case: &Case<'_>, flag: &str, value: &str) -> T {
    value.parse().unwrap_or_else(|_| panic!("{}: `{flag} {value}` cannot be read", case.file))
}
