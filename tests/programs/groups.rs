//! The groups and single ops of compiled programs, run on random data by the backend of the processor and by that of GPUs, whose
//! libraries are the stand-in of `kernels/tests/stand_in/`: they agree within bounds that follow from each plan.

mod sites;

use crate::orders::{in_all_orders, leave};
use meshwright::runtime::backends::cuda::Cuda;
use meshwright::runtime::backends::cuda::check::groups::compare_on;
use meshwright::runtime::backends::cuda::device::Device;
use sites::cases;
use std::path::Path;

#[test]
fn groups_compute_what_the_processor_computes() {
    in_all_orders(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/tests/stand_in"),
        "groups",
        "groups::on_the_stand_in",
    );
}

#[test]
#[ignore = "runs in a process that finds the stand-in"]
fn on_the_stand_in() {
    let mut cuda = Cuda::new(&Device::open(0).unwrap()).unwrap();
    let (mut bits, mut wrong, mut count) = (Vec::new(), Vec::new(), 0);
    for case in cases() {
        count += 1;
        let draw = |at, i| case.draw(at, i);
        match case.with_site(|site| compare_on(&mut cuda, site, case.run, &draw)) {
            Ok(compared) => bits.extend(compared.bytes),
            Err(why) => wrong.push(format!("{}: {why}", case.name)),
        }
    }
    println!("{count} groups and ops");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    leave(&bits);
}
