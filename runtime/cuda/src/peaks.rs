//! Peak rates of a GPU, from its clocks and units.

use serde::Serialize;

/// Upper bounds at the highest clock that the device reports; `None` where its units are not known here.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Peaks {
    /// Bytes per second from and to its memory.
    pub memory: Option<f64>,
    /// Floating-point operations per second in f32, without tensor cores.
    pub f32: Option<f64>,
    /// In TF32 on tensor cores, dense.
    pub tf32: Option<f64>,
    /// In bf16 on tensor cores, dense, accumulating in f32.
    pub bf16: Option<f64>,
    /// In 8 bits on tensor cores, dense, accumulating in f32.
    pub f8: Option<f64>,
}

impl Peaks {
    /// From the compute capability, the clock times the number of multiprocessors, and the rate of the memory.
    ///
    /// Multiply-adds per multiprocessor and clock: in f32, the table "Throughput of Native Arithmetic Instructions" of the CUDA
    /// C++ Programming Guide; on tensor cores, the architecture papers of the A100 (8.0) and H100 (9.0). TF32 runs at half
    /// the rate of bf16, and 8 bits at twice the rate where they are multiplied at all.
    pub fn of(capability: (u32, u32), clocks: f64, memory: f64) -> Peaks {
        let f32 = match capability {
            (8, 0) => Some(64.0),
            (8 | 9 | 10 | 12, _) => Some(128.0),
            _ => None,
        };
        let bf16 = match capability {
            (8, 0) => Some(1024.0),
            (9, 0) => Some(2048.0),
            _ => None,
        };
        let rate = |multiply_adds: Option<f64>| multiply_adds.map(|n| 2.0 * n * clocks).filter(|rate| *rate > 0.0);
        Peaks {
            memory: Some(memory).filter(|rate| *rate > 0.0),
            f32: rate(f32),
            tf32: rate(bf16.map(|n| n / 2.0)),
            bf16: rate(bf16),
            f8: rate(bf16.filter(|_| capability >= (8, 9)).map(|n| n * 2.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_a100_has_the_peaks_of_its_data_sheet() {
        // 108 multiprocessors at 1.41 GHz; 40 GB: 1215 MHz, 5120 bits.
        let peaks = Peaks::of((8, 0), 108.0 * 1.41e9, 2.0 * 1.215e9 * 5120.0 / 8.0);
        let near = |got: Option<f64>, want: f64| assert!((got.unwrap() / want - 1.0).abs() < 0.01, "{got:?} {want}");
        near(peaks.memory, 1.555e12);
        near(peaks.f32, 19.5e12);
        near(peaks.tf32, 156e12);
        near(peaks.bf16, 312e12);
        assert_eq!(peaks.f8, None);
    }

    #[test]
    fn an_h100_multiplies_8_bits_at_twice_the_rate() {
        // SXM: 132 multiprocessors at 1.83 GHz, 1979 TFLOP/s in 8 bits.
        let peaks = Peaks::of((9, 0), 132.0 * 1.83e9, 0.0);
        assert!((peaks.f8.unwrap() / 1979e12 - 1.0).abs() < 0.01, "{peaks:?}");
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        assert_eq!(Peaks::of((99, 0), 1e12, 0.0), Peaks { memory: None, f32: None, tf32: None, bf16: None, f8: None });
    }
}
