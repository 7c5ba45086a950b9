//! Checks of cuBLASLt matrix products against the CPU's.
//!
//! The error of an element is relative to the sum of its terms' magnitudes, `|A| |B|`. If both computations round to
//! nearest, the error is at most `2 lambda sqrt(k) u`, `u` = 2^-24, except with probability 2 k exp(-lambda^2 / 2). That
//! probability is about 1e-14 per term here (Higham and Mary 2019, A new approach to probabilistic rounding error analysis,
//! theorem 2.4). Tensor cores truncate sums instead (Fasi, Higham, Mikaitis and Pranesh 2021, Numerical behavior of NVIDIA
//! tensor cores), and truncation errors accumulate. They add at most `k 2^-23`, since products of bf16 and of f16 are exact. TF32
//! reads 11 bits of each operand, which adds 2^-9. A narrow result is rounded once, and twice if it is added to another: to 8 bits in bf16, to
//! 11 in f16, whose numbers below 2^-14 are rounded as those there.
//!
//! Of operands of 8 bits, tensor cores cut more off: all below 2^-11 of the largest number that is added (`bounds.rs`). Those operands are
//! integers here, whose sums are below 2^11 but for a probability as above: results are those of the processor, rounded once.

use super::numbers::{dtype, encoded, floats};
use super::{Bench, Found, Rows};
use crate::backend::Cuda;
use crate::error::Error;
use crate::matmul::{Addresses, Arithmetic, Formats, Matmul};
use crate::memory::Arena;
use crate::scaled;
use device::backend::{Backend, KernelSite, LaunchSite, Span};
use device::host::{get, put};
use ir::mesh::Mesh;
use ir::ops::KernelOp;
use ir::types::{DType, Type};
use kernels::cpu::einsum::Einsum;
use kernels::cuda::gemm::{Contraction, Gemm};
use kernels::scalar::Element;

const LAMBDA: f64 = 8.0;
/// Rows of a large product that are compared.
const COMPARED: usize = 64;

/// Formats of products, with their names.
const FORMATS: [(Formats, &str); 5] = [
    (Formats::F32, "f32"),
    (Formats { arithmetic: Arithmetic::Bf16, result: Element::F32 }, "bf16 to f32"),
    (Formats { arithmetic: Arithmetic::Bf16, result: Element::Bf16 }, "bf16"),
    (Formats { arithmetic: Arithmetic::F16, result: Element::F16 }, "f16"),
    (Formats { arithmetic: Arithmetic::Tf32, result: Element::F32 }, "tf32"),
];

/// Formats of products of 8 bits.
const EIGHT_BITS: [(Formats, &str); 3] = [
    (eight_bits([Element::F8E4M3, Element::F8E4M3], Element::Bf16), "e4m3 to bf16"),
    (eight_bits([Element::F8E5M2, Element::F8E4M3], Element::F32), "e5m2 e4m3 to f32"),
    (eight_bits([Element::F8E4M3, Element::F8E5M2], Element::F16), "e4m3 e5m2 to f16"),
];

const fn eight_bits(operands: [Element; 2], result: Element) -> Formats {
    Formats { arithmetic: Arithmetic::F8(operands), result }
}

/// Sizes of these: `b, m, k, n`.
const MULTIPLES: [[usize; 4]; 4] = [[1, 16, 16, 16], [1, 48, 512, 32], [1, 256, 64, 128], [1, 16, 65_536, 16]];

/// The scales of these, whose product is 1.
static SCALES: [f32; 2] = [0.25, 4.0];

/// Equations over `b`, `m`, `k`, `n`, with their meaning.
const KINDS: [(&str, &str); 5] = [
    ("mk,kn>mn", "A B"),
    ("mk,nk>mn", "A B'"),
    ("km,kn>mn", "A' B"),
    ("mk,kn>nm", "(A B)'"),
    ("bmk,bkn>bmn", "batch of A B"),
];

/// `b, m, k, n`: tiny, odd, aligned, a single row or column or term, a long sum.
const SIZES: [[usize; 4]; 8] = [
    [1, 1, 1, 1],
    [3, 3, 5, 7],
    [5, 127, 65, 33],
    [4, 512, 256, 512],
    [2, 1, 512, 768],
    [2, 768, 512, 1],
    [2, 64, 1, 64],
    [1, 16, 65_536, 16],
];

pub(super) fn check(bench: &mut Bench, rows: &mut Rows<'_>) {
    let mut matmul = match Matmul::new(&bench.device) {
        Ok(matmul) => matmul,
        Err(why) => return rows.check("cuBLASLt", "", "FLOP/s", || Err(why)),
    };
    for (formats, name) in FORMATS {
        for (equation, what) in KINDS {
            rows.check(format!("{what} {name}"), "tiny to long", "FLOP/s", || {
                products(bench, &mut matmul, equation, &SIZES, formats)
            });
        }
        if formats.arithmetic != Arithmetic::Tf32 {
            rows.check(format!("A I = A {name}"), "300 x 300 x 300", "FLOP/s", || {
                identity(bench, &mut matmul, formats)
            });
        }
        let n = bench.extent.matrix;
        for size in [[n; 3], [2 * n, n, n + 1]] {
            rows.check(format!("A B {name}"), size.map(|n| n.to_string()).join(" x "), "FLOP/s", || {
                large(bench, &mut matmul, "mk,kn>mn", size, formats)
            });
        }
    }
    check_eight_bits(bench, &mut matmul, rows);
    let shape = format!("{0} x {0} x {0}", bench.extent.matrix);
    rows.check("A B bf16, fastest of several", shape, "FLOP/s", || timed(bench));
    for equation in
        ["b s h, h g r d -> b s g r d", "b s g r d, b t g d -> b g r s t", "b g r s t, b t g d -> b s g r d"]
    {
        let shape = "b=2 s=33 t=40 g=3 r=2 d=64 h=96";
        rows.check(format!("einsum {equation}"), shape, "FLOP/s", || einsum(bench, equation));
    }
}

/// Products of 8 bits, where the device has them.
fn check_eight_bits(bench: &mut Bench, matmul: &mut Matmul, rows: &mut Rows<'_>) {
    if !scaled::has_eight_bits(bench.device.properties().capability) {
        return;
    }
    let n = bench.extent.matrix;
    for (formats, name) in EIGHT_BITS {
        rows.check(format!("A B' {name}"), "tiny to long", "FLOP/s", || {
            products(bench, matmul, "mk,nk>mn", &MULTIPLES, formats)
        });
        rows.check(format!("A B' {name}"), format!("{n} x {n} x {n}"), "FLOP/s", || {
            large(bench, matmul, "mk,nk>mn", [n; 3], formats)
        });
    }
}

/// A number of a tensor in a format.
fn number(formats: Formats, format: Element, x: f32) -> f32 {
    format.nearest(if let Arithmetic::F8(_) = formats.arithmetic { x.round() } else { x })
}

/// The largest relative error of a result that is rounded a number of times.
fn bound(k: usize, formats: Formats, times: f64) -> f64 {
    let (k, unit) = (k as f64, 2f64.powi(-24));
    let nearest = 2.0 * LAMBDA * k.sqrt() * unit;
    let sum = match formats.arithmetic {
        Arithmetic::F32 => nearest,
        Arithmetic::Bf16 | Arithmetic::F16 => nearest + 2.0 * k * unit,
        // Only integers are compared, whose sums are exact.
        Arithmetic::F8(_) => 0.0,
        Arithmetic::Tf32 => nearest + 2.0 * k * unit + 2f64.powi(-9),
    };
    // A rounded result has the error of the sum, too.
    sum + times
        * (1.0 + sum)
        * match formats.result {
            Element::Bf16 => 2f64.powi(-8),
            Element::F16 => 2f64.powi(-11),
            _ => 0.0,
        }
}

fn peak(bench: &Bench, arithmetic: Arithmetic) -> Option<f64> {
    let peaks = bench.device.properties().peaks;
    match arithmetic {
        Arithmetic::F32 => peaks.f32,
        Arithmetic::Tf32 => peaks.tf32,
        // Tensor cores multiply both at one rate.
        Arithmetic::Bf16 | Arithmetic::F16 => peaks.bf16,
        Arithmetic::F8(_) => peaks.f8,
    }
}

/// The letters of a contraction's tensors, and their sizes.
struct Eq {
    letters: [Vec<char>; 3],
    dims: [Vec<usize>; 2],
}

impl Eq {
    fn new(equation: &str, size: impl Fn(char) -> usize) -> Eq {
        let mut tensors = equation.split([',', '>']).map(|part| part.chars().collect::<Vec<_>>());
        let letters = [(); 3].map(|()| tensors.next().unwrap_or_default());
        let dims = [0, 1].map(|t| letters[t].iter().map(|&letter| size(letter)).collect());
        Eq { letters, dims }
    }

    fn gpu(&self) -> Result<Contraction, Error> {
        let [a, b, out] = &self.letters;
        Contraction::new(a, b, out, &self.dims[0], &self.dims[1]).map_err(Error::Program)
    }

    /// The product by this processor.
    fn cpu(&self, bench: &Bench, a: &[f32], b: &[f32], len: usize) -> Result<Vec<f32>, Error> {
        let [x, y, out] = &self.letters;
        let plan = Einsum::new(x, y, out, &self.dims[0], &self.dims[1]).map_err(Error::Program)?;
        let mut result = vec![0.0; len];
        plan.run(a, b, &mut result, false, bench.par, &mut Vec::new());
        Ok(result)
    }

    /// The largest error of a result in a format, relative to the magnitudes of the terms; with what was held before.
    fn error(
        &self,
        bench: &Bench,
        [a, b]: [&[f32]; 2],
        [got, held]: [&[f32]; 2],
        format: Element,
    ) -> Result<f64, Error> {
        let right = self.cpu(bench, a, b, got.len())?;
        let magnitudes = |x: &[f32]| x.iter().map(|x| x.abs()).collect::<Vec<_>>();
        let size = self.cpu(bench, &magnitudes(a), &magnitudes(b), got.len())?;
        let least = if format == Element::F16 { 2f64.powi(-14) } else { f64::MIN_POSITIVE };
        let worst = (0..got.len()).map(|i| {
            let (right, size) =
                (f64::from(right[i]) + f64::from(held[i]), f64::from(size[i]) + f64::from(held[i].abs()));
            let error = (f64::from(got[i]) - right).abs() / size.max(least);
            if error.is_nan() { f64::INFINITY } else { error }
        });
        Ok(worst.fold(0.0, f64::max))
    }
}

/// The operands on the device, and the buffer of the result.
struct Placed {
    /// The allocation that contains the addresses.
    _arena: Arena,
    /// Those of the contraction's operands, of the result, and of scales.
    addresses: [u64; 5],
    result: usize,
    formats: Formats,
}

impl Placed {
    fn new(bench: &mut Bench, a: &[f32], b: &[f32], held: &[f32], formats: Formats) -> Result<Placed, Error> {
        let [first, second] = formats.operands();
        let tensors = [(a, first), (b, second), (held, formats.result)];
        let scales = SCALES.each_ref().map(|scale| (std::slice::from_ref(scale), Element::F32));
        let buffers: Vec<Vec<u8>> = tensors.iter().chain(&scales).map(|(x, of)| encoded(dtype(*of), x)).collect();
        let starts: Vec<usize> = (buffers.iter())
            .scan(0, |end, buffer| {
                let start = *end;
                *end += buffer.len().next_multiple_of(256);
                Some(start)
            })
            .collect();
        let arena = Arena::new(&bench.device, starts[4] + buffers[4].len())?;
        let addresses = [0, 1, 2, 3, 4].map(|i| arena.address(starts[i], buffers[i].len()));
        for (address, buffer) in addresses.iter().zip(&buffers) {
            // SAFETY: the arena was just taken; this is the only stream.
            unsafe { bench.staging.write(&bench.stream, *address, buffer)? };
        }
        Ok(Placed { _arena: arena, addresses, result: held.len(), formats })
    }

    /// The addresses as the product takes them.
    fn ordered(&self, gemm: &Gemm) -> Addresses {
        let [first, second, d, of_first, of_second] = self.addresses;
        let ([a, b], scales) = (gemm.ordered([first, second]), gemm.ordered([of_first, of_second]));
        let is_scaled = matches!(self.formats.arithmetic, Arithmetic::F8(_));
        Addresses { matrices: [a, b, d], scales: is_scaled.then_some(scales), added: None }
    }

    fn read(&self, bench: &mut Bench) -> Result<Vec<f32>, Error> {
        let mut got = vec![0; self.formats.result.bytes() * self.result];
        // SAFETY: the result is in the arena; this is the only stream.
        unsafe { bench.staging.read(&bench.stream, &mut got, self.addresses[2])? };
        Ok(floats(dtype(self.formats.result), &got))
    }
}

/// The worst of all sizes.
fn products(
    bench: &mut Bench,
    matmul: &mut Matmul,
    equation: &str,
    sizes: &[[usize; 4]],
    formats: Formats,
) -> Result<Found, Error> {
    let mut worst = Found::results(0.0, f64::INFINITY);
    let most = bench.extent.terms;
    for size in sizes.iter().filter(|size| size.iter().product::<usize>() <= most) {
        let found = product(bench, matmul, equation, *size, formats)?;
        if found.error / found.bound >= worst.error / worst.bound {
            let note = found.note.map_or_else(String::new, |note| format!(": {note}"));
            worst = Found { note: Some(format!("largest at b, m, k, n = {size:?}{note}")), ..found };
        }
    }
    // A failure names its size.
    let note = worst.note.filter(|_| worst.error > worst.bound);
    Ok(Found { note, ..worst })
}

/// A matmul in its own layout, first written and then accumulated.
fn product(
    bench: &mut Bench,
    matmul: &mut Matmul,
    equation: &str,
    [b, m, k, n]: [usize; 4],
    formats: Formats,
) -> Result<Found, Error> {
    let eq = Eq::new(equation, |letter| match letter {
        'b' => b,
        'm' => m,
        'k' => k,
        _ => n,
    });
    let plan = eq.gpu()?;
    let [first, second] = formats.operands();
    let numbers = |t: usize, format: Element, seed: usize| -> Vec<f32> {
        bench.normals(plan.sizes[t], seed).iter().map(|&x| number(formats, format, x)).collect()
    };
    // Shifted by as much, no sum of a long product is one of squares, which f16 does not hold.
    let (x, y, held) = (numbers(0, first, 0), numbers(1, second, 31), numbers(2, formats.result, 7));
    let placed = Placed::new(bench, &x, &y, &held, formats)?;
    let mut errors = [0f64; 2];
    let mut before = held;
    for accumulate in [true, false] {
        // SAFETY: the matrices are in the arena; this is the only stream.
        unsafe { matmul.launch(&bench.stream, &plan.gemm, formats, placed.ordered(&plan.gemm), accumulate)? };
        let got = placed.read(bench)?;
        errors[usize::from(accumulate)] = eq.error(bench, [&x, &y], [&got, &before], formats.result)?;
        before.fill(0.0);
    }
    let before = placed.read(bench)?;
    // SAFETY: as above.
    unsafe { matmul.launch(&bench.stream, &plan.gemm, formats, placed.ordered(&plan.gemm), false)? };
    let is_same = placed.read(bench)?.iter().zip(&before).all(|(a, b)| a.to_bits() == b.to_bits());
    // A sum whose terms come in another order each time has no error that is right.
    let [alone, added] = errors;
    let found = Found::results(if is_same { alone.max(added) } else { f64::INFINITY }, bound(k + 1, formats, 2.0));
    let algorithms = matmul.algorithms(&plan.gemm, formats).join("; ");
    let again = if is_same { "equal" } else { "other" };
    Ok(found.noted(format!("{alone:.1e} alone, {added:.1e} added, {again} bits again, by {algorithms}")))
}

/// Times the identity, a product is exact if no bit of the operand is lost.
fn identity(bench: &mut Bench, matmul: &mut Matmul, formats: Formats) -> Result<Found, Error> {
    let n = 300;
    let eq = Eq::new("mk,kn>mn", |_| n);
    let plan = eq.gpu()?;
    let a: Vec<f32> = bench.normals(n * n, 1).iter().map(|&x| formats.operands()[0].nearest(x)).collect();
    let one: Vec<f32> = (0..n * n).map(|i| if i % (n + 1) == 0 { 1.0 } else { 0.0 }).collect();
    let placed = Placed::new(bench, &a, &one, &vec![0.0; n * n], formats)?;
    // SAFETY: the matrices are in the arena; this is the only stream.
    unsafe { matmul.launch(&bench.stream, &plan.gemm, formats, placed.ordered(&plan.gemm), false)? };
    let got = placed.read(bench)?;
    let wrong = got.iter().zip(&a).filter(|(got, a)| got != a).count();
    Ok(Found::results(wrong as f64 / got.len() as f64, 0.0))
}

/// A large matmul, with some rows compared, and its speed.
fn large(
    bench: &mut Bench,
    matmul: &mut Matmul,
    equation: &str,
    [m, k, n]: [usize; 3],
    formats: Formats,
) -> Result<Found, Error> {
    let sized = |rows: usize| {
        Eq::new(equation, move |letter| {
            if letter == 'm' {
                rows
            } else if letter == 'k' {
                k
            } else {
                n
            }
        })
    };
    let plan = sized(m).gpu()?;
    let stock = bench.extent.elements;
    let numbers = |bench: &Bench, len: usize, format: Element, seed: usize| -> Vec<f32> {
        // Longer than the stock of numbers: they come again, shifted.
        (0..len).map(|i| number(formats, format, bench.normals[(i + seed + i / stock) % stock])).collect()
    };
    let [first, second] = formats.operands();
    let (a, b) = (numbers(bench, m * k, first, 0), numbers(bench, k * n, second, 31));
    let placed = Placed::new(bench, &a, &b, &vec![0.0; m * n], formats)?;
    let operands = placed.ordered(&plan.gemm);
    // SAFETY: the matrices are in the arena; this is the only stream.
    unsafe { matmul.launch(&bench.stream, &plan.gemm, formats, operands, false)? };
    let got = placed.read(bench)?;
    let rows = |x: &[f32], width: usize| -> Vec<f32> {
        // From the first to the last.
        (0..COMPARED).flat_map(|i| x[i * (m - 1) / (COMPARED - 1) * width..][..width].to_vec()).collect()
    };
    let got = rows(&got, n);
    let error = sized(COMPARED).error(bench, [&rows(&a, k), &b], [&got, &vec![0.0; got.len()]], formats.result)?;
    // SAFETY: as above.
    let launch = |stream: &_| unsafe { matmul.launch(stream, &plan.gemm, formats, operands, false) };
    let seconds = bench.seconds(launch)?;
    let peak = peak(bench, formats.arithmetic);
    Ok(Found::results(error, bound(k, formats, 1.0)).at(plan.gemm.flops() as f64 / seconds, peak))
}

/// A large matmul by the fastest of several algorithms.
fn timed(bench: &mut Bench) -> Result<Found, Error> {
    let (n, formats) = (bench.extent.matrix, FORMATS[2].0);
    let mut matmul = Matmul::new(&bench.device)?;
    matmul.set_timing(true);
    let eq = Eq::new("mk,kn>mn", |_| n);
    matmul.prepare(&bench.stream, &eq.gpu()?.gemm, formats, None)?;
    large(bench, &mut matmul, "mk,kn>mn", [n; 3], formats)
}

/// An einsum through the backend, with its copies before and after the product, whose algorithm is the fastest of several: given to one stream, and read by another.
fn einsum(bench: &mut Bench, equation: &str) -> Result<Found, Error> {
    let size = |letter: &str| match letter {
        "b" | "r" => 2,
        "s" => 33,
        "t" => 40,
        "g" => 3,
        "d" => 64,
        _ => 96,
    };
    let op = ir::ops::Einsum::new(equation).map_err(Error::Program)?;
    let letters = |names: &[String]| names.iter().filter_map(|name| name.chars().next()).collect::<Vec<_>>();
    let [x, y] = [0, 1].map(|t| letters(&op.equation.operands[t]));
    let eq = Eq {
        dims: [&x, &y].map(|letters| letters.iter().map(|l| size(&l.to_string())).collect()),
        letters: [x, y, letters(&op.equation.result)],
    };
    let ty = |names: &[String]| Type::of(DType::F32, &names.iter().map(|name| size(name) as u64).collect::<Vec<_>>());
    let operands: Vec<Type> = op.equation.operands.iter().map(|names| ty(names)).collect();
    let result = ty(&op.equation.result);

    let mut spans = Vec::new();
    let mut end = 0;
    for ty in operands.iter().chain([&result]) {
        let span = Span::new(DType::F32, end, ty.elements() as usize);
        spans.push(span);
        end += span.bytes().next_multiple_of(256);
    }
    let mut cuda = Cuda::new(&bench.device)?;
    cuda.time_products();
    cuda.reserve(end).map_err(Error::Program)?;
    let mesh = Mesh::default();
    let operands: Vec<&Type> = operands.iter().collect();
    let site = KernelSite { mesh: &mesh, coordinates: &[], operands: &operands, results: &[&result], forward: true };
    let mut other = cuda.fork().map_err(Error::Program)?;
    let mut kernel = other.prepare(&KernelOp::Einsum(op), &site).map_err(Error::Program)?;
    let (a, b) = (bench.normals(spans[0].len, 1).to_vec(), bench.normals(spans[1].len, 2).to_vec());
    let held = bench.normals(spans[2].len, 3).to_vec();
    for (span, data) in spans.iter().zip([&a, &b, &held]) {
        put(&mut cuda, *span, data);
    }
    // The other thread's work comes after what is put, and before what is got.
    cuda.record(0);
    other.wait(0);
    other.launch(&mut kernel, LaunchSite::default(), &spans[..2], &spans[2..], true);
    other.record(1);
    cuda.wait(1);
    let got = get(&mut cuda, spans[2]);
    let terms =
        eq.letters[0].iter().filter(|l| !eq.letters[2].contains(l)).map(|l| size(&l.to_string())).product::<usize>();
    Ok(Found::results(eq.error(bench, [&a, &b], [&got, &held], Element::F32)?, bound(terms + 1, Formats::F32, 1.0)))
}
