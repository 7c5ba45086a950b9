//! The groups and single ops of compiled programs, run on random data by the backend of the processor and by that of GPUs, whose
//! libraries are the stand-in of `kernels/tests/stand_in/`: they agree within bounds that follow from each plan.
#![cfg(target_os = "linux")]

#[path = "groups/sites.rs"]
mod sites;
#[path = "../kernels/tests/stand_in/build.rs"]
mod stand_in;

use runtime::backends::cuda::Cuda;
use runtime::backends::cuda::check::groups::compare;
use runtime::backends::cuda::device::Device;
use sites::cases;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The file in which the other process leaves the bits of all results.
const BITS: &str = "GROUPS_TEST_BITS";

#[test]
fn groups_compute_what_the_processor_computes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("groups");
    stand_in::build(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/tests/stand_in"), &folder);
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
    let (mut bits, mut wrong, mut count) = (Vec::new(), Vec::new(), 0);
    for case in cases() {
        count += 1;
        match case.with_site(|site| compare(&mut cuda, site, case.run)) {
            Ok(compared) => bits.extend(compared.bytes),
            Err(why) => wrong.push(format!("{}: {why}", case.name)),
        }
    }
    println!("{count} groups and ops");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    fs::write(std::env::var(BITS).unwrap(), bits).unwrap();
}
