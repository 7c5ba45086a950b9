//! Peak rates of this machine: the best of several large matrix products and additions on all threads that a run uses.

use device::at_once::at_once;
use device::cores::check_threads;
use device::host::narrow;
use device::timed::TimedOperand;
use ir::types::DType;
use kernels::cpu::Par;
use kernels::cpu::einsum::Einsum;
use kernels::cpu::elementwise::{Binary, binary};
use kernels::cpu::narrow::Narrow;
use std::time::{Duration, Instant};
use trace::Peak;

/// Rows and columns of the product: its three matrices fill 3 MiB, and their packed blocks stay in cache.
const PRODUCT: usize = 512;

/// Elements of the sums: three tensors of 32 MiB, more than a core's caches hold.
const SUM: usize = 8 << 20;

/// How long each of the two is tried.
const TRY: Duration = Duration::from_millis(250);

/// Measures for about half a second, on `threads` threads at once, with products of operands of a type.
///
/// # Errors
/// The system gives no threads, or one of them fails.
pub fn peak(threads: usize, dtype: DType) -> Result<Peak, String> {
    check_threads(threads)?;
    let plan = product_plan()?;
    let product = || product(&plan, narrow(dtype));
    let sum = || {
        let (a, b, mut out) = (vec![1.0; SUM], vec![0.5; SUM], vec![0.0; SUM]);
        move || binary(Binary::Add, &a[..], &b[..], &mut out, Par(1))
    };
    let flops = rates(threads, product)? * plan.flops() as f64;
    Ok(Peak { flops, bandwidth: rates(threads, sum)? * (12 * SUM) as f64 })
}

fn product_plan() -> Result<Einsum, String> {
    let letters = ["mk", "kn", "mn"].map(|letters| letters.chars().collect::<Vec<_>>());
    Einsum::new(&letters[0], &letters[1], &letters[2], &[PRODUCT; 2], &[PRODUCT; 2])
}

fn product(plan: &Einsum, format: Option<Narrow>) -> impl FnMut() {
    let [a, b] = [1.0, 0.5].map(|value| TimedOperand::new(format, value, PRODUCT * PRODUCT));
    let (mut out, mut scratch) = (vec![0.0; PRODUCT * PRODUCT], Vec::new());
    move || plan.run(a.read(), b.read(), &mut out, false, Par(1), &mut scratch)
}

/// Average FLOP/s of products on `threads` threads at once for a time: the machine's speed at the moment, other work included.
///
/// # Errors
/// The system gives no threads, or one of them fails.
pub fn product_rate(threads: usize, time: Duration) -> Result<f64, String> {
    check_threads(threads)?;
    let plan = product_plan()?;
    let repeat = |()| {
        let mut product = product(&plan, None);
        product();
        let (began, mut products) = (Instant::now(), 0);
        while began.elapsed() < time {
            product();
            products += 1;
        }
        f64::from(products) / began.elapsed().as_secs_f64()
    };
    Ok(at_once(threads, || (), repeat)?.iter().sum::<f64>() * plan.flops() as f64)
}

/// The best rates of all threads, which work at the same time, added: calls per second.
///
/// # Errors
/// A thread fails.
fn rates<W: FnMut()>(threads: usize, work: impl Fn() -> W + Sync) -> Result<f64, String> {
    let prepare = || {
        let mut work = work();
        work();
        work
    };
    let best = |mut work: W| {
        let (began, mut best) = (Instant::now(), f64::INFINITY);
        while began.elapsed() < TRY {
            let call = Instant::now();
            work();
            best = best.min(call.elapsed().as_secs_f64());
        }
        1.0 / best
    };
    Ok(at_once(threads, prepare, best)?.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_fails_has_no_rate() {
        let fails = || || panic!("no kernel");
        assert_eq!(rates(2, fails), Err("no kernel".to_string()));
    }
}
