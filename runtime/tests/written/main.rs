//! Ops whose kernels are written by hand, run by the backend of the processor and by that of GPUs, whose libraries are the stand-in of
//! `kernels/tests/stand_in/`. They agree within derived bounds, most to the bit, and in any order of the threads.
#![cfg(target_os = "linux")]

mod ops;
#[path = "../../../kernels/tests/stand_in/build.rs"]
mod stand_in;

use meshwright_runtime::backend::Backend;
use meshwright_runtime::backends::cuda::Cuda;
use meshwright_runtime::backends::cuda::check::groups::compare_on;
use meshwright_runtime::backends::cuda::device::Device;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The file in which the other process leaves the bits of all results.
const BITS: &str = "WRITTEN_TEST_BITS";

#[test]
fn written_kernels_compute_what_the_processor_computes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("written");
    stand_in::build(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/tests/stand_in"), &folder);
    let run = |order: &str| {
        let bits = folder.join(format!("bits-{order}"));
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["on_the_stand_in", "--exact", "--ignored", "--nocapture"]);
        other.env("LD_LIBRARY_PATH", &folder).env("STAND_IN_FOLDER", &folder);
        let ran = other.env("STAND_IN_ORDER", order).env(BITS, &bits).output().unwrap();
        let told = [ran.stdout, ran.stderr].map(|told| String::from_utf8_lossy(&told).into_owned()).concat();
        assert!(ran.status.success(), "{order}: {told}");
        fs::read(bits).unwrap()
    };
    let first = run("forward");
    assert!(!first.is_empty());
    for order in ["reverse", "5"] {
        assert!(run(order) == first, "{order}: an order of the threads changes bits");
    }
}

#[test]
#[ignore = "runs in a process that finds the stand-in"]
fn on_the_stand_in() {
    let mut cuda = Cuda::new(&Device::open(0).unwrap()).unwrap();
    let (mut bits, mut wrong, mut dispatched) = (Vec::new(), Vec::new(), 0);
    for case in ops::cases() {
        dispatched += u64::from(case.name.starts_with("dispatch "));
        match case.with_site(|site| compare_on(&mut cuda, site, case.run, &case.draw)) {
            Ok(compared) => bits.extend(compared.bytes),
            Err(why) => wrong.push(format!("{}: {why}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!([cuda.take_choices(), cuda.take_choices()], [choices().map(|count| count * dispatched), [0, 0]]);
    fs::write(std::env::var(BITS).unwrap(), bits).unwrap();
}

/// The choices of experts of a dispatch, and those of them that are dropped.
fn choices() -> [u64; 2] {
    let chosen = |group: u64, expert: u64| {
        (12 * group..12 * (group + 1)).filter(|&i| ops::picks([0, 1], i) == Some(expert as f32)).count() as u64
    };
    let counts = (0..2).flat_map(|group| (0..4).map(move |expert| chosen(group, expert)));
    counts.fold([0, 0], |[all, dropped], count| [all + count, dropped + count.saturating_sub(2)])
}
