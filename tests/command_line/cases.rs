//! All case files under `tests/cases`.

mod compile;

use std::path::Path;

#[test]
fn every_case_has_its_answer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    crate::driver::run(&folder, |case| {
        crate::driver::text_answer(case)
            .or_else(|| compile::answer(case))
            .unwrap_or_else(|| panic!("{}: no command `{}`", case.file, case.command))
    });
}
