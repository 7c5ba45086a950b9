//! Ops whose kernels are written by hand, run by the backend of the processor and by that of GPUs, whose libraries are the stand-in of
//! `kernels/tests/stand_in/`. They agree within derived bounds, most to the bit, and in any order of the threads.
#![cfg(target_os = "linux")]

mod ops;
#[path = "../../../../kernels/tests/stand_in/orders.rs"]
mod orders;
#[path = "../../../../kernels/tests/stand_in/build.rs"]
mod stand_in;

use device::backend::Backend;
use meshwright_cuda::Cuda;
use meshwright_cuda::check::groups::compare_on;
use meshwright_cuda::device::Device;
use orders::{in_all_orders, leave};
use std::path::Path;

#[test]
fn written_kernels_compute_what_the_processor_computes() {
    in_all_orders(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/tests/stand_in"),
        "written",
        "on_the_stand_in",
    );
}

#[test]
#[ignore = "runs in a process that finds the stand-in"]
fn on_the_stand_in() {
    let mut cuda = Cuda::new(&Device::open(0).unwrap()).unwrap();
    let (mut bits, mut wrong, mut dispatched) = (Vec::new(), Vec::new(), 0);
    for case in ops::cases() {
        dispatched += u64::from(case.name.starts_with("dispatch "));
        match case.with_site(|site| compare_on(&mut cuda, site, case.run, &case.draw)) {
            Ok(compared) if case.is_exact && compared.error > 0.0 => wrong.push(format!("{}: not equal", case.name)),
            Ok(compared) => bits.extend(compared.bytes),
            Err(why) => wrong.push(format!("{}: {why}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!([cuda.take_choices(), cuda.take_choices()], [choices().map(|count| count * dispatched), [0, 0]]);
    leave(&bits);
}

/// The choices of experts of a dispatch, and those of them that are dropped.
fn choices() -> [u64; 2] {
    let chosen = |group: u64, expert: u64| {
        (12 * group..12 * (group + 1)).filter(|&i| ops::picks([0, 1], i) == Some(expert as f32)).count() as u64
    };
    let counts = (0..2).flat_map(|group| (0..4).map(move |expert| chosen(group, expert)));
    counts.fold([0, 0], |[all, dropped], count| [all + count, dropped + count.saturating_sub(2)])
}
