//! Peak rates of a GPU as its backend reaches them: the best of products and of copies of growing sizes.

use super::bench::Bench;
use super::memory::copy_bandwidth;
use super::products::product;
use crate::Error;
use crate::device::Device;
use ir::types::DType;
use std::sync::Arc;
use trace::Peak;

/// Rows and columns of the first product, and of the largest, whose bf16 operands fill 256 MiB.
const PRODUCTS: [usize; 2] = [128, 8192];

/// Bytes of the first operands to be copied half, and of the largest: several times what caches hold.
const COPIES: [usize; 2] = [4 << 20, 512 << 20];

/// Seconds of a launch beyond which sizes no longer grow: hundreds of times what a launch itself takes, a few microseconds.
const LONG: f64 = 1e-3;

/// Measures for a second or two, in the type of the products of a run.
///
/// # Errors
/// There is no memory for it, or a kernel cannot be had.
pub fn gpu_peak(device: &Arc<Device>, dtype: DType) -> Result<Peak, Error> {
    let flops = best(PRODUCTS, |n| {
        let mut bench = Bench::of(device, 2 * n * n * dtype.bytes() as usize)?;
        let seconds = product(&mut bench, dtype, [1, n, n, n], false)?.product.seconds;
        Ok((2.0 * (n as f64).powi(3) / seconds, seconds))
    })?;
    let bandwidth = best(COPIES, |half| {
        let rate = copy_bandwidth(&mut Bench::of(device, half)?)?;
        Ok((rate, half as f64 / rate))
    })?;
    Ok(Peak { flops, bandwidth })
}

/// The best rate of sizes that double, up to the last or the first that takes long. `measure` gives the rate of a size and its seconds.
fn best([first, last]: [usize; 2], mut measure: impl FnMut(usize) -> Result<(f64, f64), Error>) -> Result<f64, Error> {
    let (mut best, mut size) = (0.0, first);
    loop {
        let (rate, seconds) = measure(size)?;
        best = f64::max(best, rate);
        if seconds >= LONG || size >= last {
            return Ok(best);
        }
        size *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_until_one_takes_long_or_is_the_last() {
        let mut sizes = Vec::new();
        let mut measured = |seconds: &dyn Fn(usize) -> f64| {
            sizes.clear();
            let best = best([1, 8], |size| {
                sizes.push(size);
                Ok((10.0 - size as f64, seconds(size)))
            });
            (best.unwrap(), sizes.clone())
        };
        assert_eq!(measured(&|_| 0.0), (9.0, vec![1, 2, 4, 8]));
        assert_eq!(measured(&|size| if size == 2 { LONG } else { 0.0 }), (9.0, vec![1, 2]));
    }
}
