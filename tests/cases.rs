//! All case files under `tests/cases`.

#[path = "cases/compile.rs"]
mod compile;
#[path = "cases/driver.rs"]
mod driver;

use std::path::Path;

#[test]
fn every_case_has_its_answer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    driver::run(&folder, |case| {
        driver::text_answer(case)
            .or_else(|| compile::answer(case))
            .unwrap_or_else(|| panic!("{}: no command `{}`", case.file, case.command))
    });
}
