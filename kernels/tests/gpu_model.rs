//! The model of a GPU on which kernels in CUDA C are tested: it computes what CUDA defines, in every order of threads and blocks,
//! and it finds the mistakes of kernels that are wrong.
#![cfg(target_os = "linux")]

mod stand_in;

use meshwright_kernels::cuda::trials;
use stand_in::{Field, Launch, StandIn};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

static STAND_IN: LazyLock<StandIn> = LazyLock::new(|| StandIn::new("gpu_model"));

const RIGHT: &str = include_str!("gpu_model/right.cu");
const WRONG: &str = include_str!("gpu_model/wrong.cu");
const EARLY: &str = include_str!("gpu_model/early.cu");

const ORDERS: [&str; 4] = ["forward", "reverse", "1", "2"];

/// Runs a launch in all orders, which must give the same bits.
fn run(source: &str, buffers: &[Vec<u8>], launch: &Launch<'_>) -> Vec<Vec<u8>> {
    let run = |order| STAND_IN.run(source, buffers, std::slice::from_ref(launch), order);
    let results = ORDERS.map(|order| run(order).unwrap_or_else(|why| panic!("{}, {order}: {why}", launch.kernel)));
    for (result, order) in results.iter().zip(ORDERS) {
        assert!(*result == results[0], "{}: {order} gives other bits", launch.kernel);
    }
    results.into_iter().next().unwrap()
}

/// Small integers, of which sums in any order are exact.
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 37 % 101) as f32 - 50.0).collect()
}

fn bytes(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    words(bytes).into_iter().map(|bits| f32::from_bits(bits as u32)).collect()
}

fn at(buffer: usize) -> Vec<Field> {
    vec![Field::At(buffer, 0)]
}

fn value(bytes: &[u8]) -> Vec<Field> {
    vec![Field::Value(bytes.to_vec())]
}

fn int(n: u32) -> Vec<Field> {
    value(&n.to_le_bytes())
}

#[test]
fn a_block_sums_through_shared_memory() {
    let x = numbers(5 * 256);
    let launch = Launch::new("block_sums", [5, 1, 1], [256, 1, 1], vec![at(0), at(1)]);
    let sums: Vec<f32> = x.chunks(256).map(|part| part.iter().sum()).collect();
    assert_eq!(floats(&run(RIGHT, &[bytes(&x), vec![0; 20]], &launch)[1]), sums);
}

#[test]
fn a_warp_sums_through_shuffles() {
    let x = numbers(192);
    let launch = Launch::new("warp_sums", [2, 1, 1], [96, 1, 1], vec![at(0), at(1), at(2)]);
    let results = run(RIGHT, &[bytes(&x), vec![0; 4 * 192], vec![0; 24]], &launch);
    let sums: Vec<f32> = x.chunks(32).map(|part| part.iter().sum()).collect();
    assert_eq!(floats(&results[1]), sums.iter().flat_map(|sum| [*sum; 32]).collect::<Vec<_>>());
    assert_eq!(floats(&results[2]), sums);
}

#[test]
fn shuffles_and_votes_read_the_lanes_that_cuda_defines() {
    for width in [4, 16, 32] {
        let launch = Launch::new("shuffles", [1, 1, 1], [32, 1, 1], vec![at(0), int(width as u32)]);
        let got = words(&run(RIGHT, &[vec![0; 32 * 32]], &launch)[0]);
        let thirds = (0..32).step_by(3).fold(0u32, |bits, lane| bits | 1 << lane) as i32;
        for lane in 0..32 {
            let first = lane / width * width;
            let within = |from: i32| if from >= first && from < first + width { from } else { lane };
            // A lane may read from the groups before its own.
            let xor = if (lane ^ 9) < first + width { lane ^ 9 } else { lane };
            let halves = if lane < 16 { lane ^ 1 } else { lane ^ 2 };
            let right =
                [first + 3 % width, within(lane - 3), within(lane + 3), xor, lane * 5 % 32, halves, thirds, 4 + 2];
            assert_eq!(got[8 * lane as usize..][..8], right, "width {width}, lane {lane}");
        }
    }
}

#[test]
fn lanes_pass_numbers_on_between_warp_barriers() {
    let launch = Launch::new("ring", [1, 1, 1], [64, 1, 1], vec![at(0), int(5)]);
    let got = words(&run(RIGHT, &[vec![0; 256]], &launch)[0]);
    assert_eq!(got, (0..64).map(|t| t / 32 * 32 + (t + 5) % 32).collect::<Vec<_>>());
}

#[test]
fn barriers_count() {
    for (some, all) in [(1, 0), (0, 1), (0, 0)] {
        let number = |t: i32| if all == 1 { 0 } else { t + 1 - some };
        let numbers: Vec<u8> = (0..50).flat_map(|t| number(t).to_le_bytes()).collect();
        let launch = Launch::new("counts", [1, 1, 1], [50, 1, 1], vec![at(0), at(1)]);
        let got = words(&run(RIGHT, &[numbers, vec![0; 12]], &launch)[1]);
        assert_eq!(got, [if all == 1 { 50 } else { 25 }, some | all, all]);
    }
}

#[test]
fn a_matrix_is_transposed_through_shared_memory() {
    let (rows, columns) = (45, 70);
    let x = numbers(rows * columns);
    let arguments = vec![at(0), at(1), int(rows as u32), int(columns as u32)];
    let launch = Launch::new("transposed", [3, 2, 1], [32, 8, 1], arguments);
    let got = floats(&run(RIGHT, &[bytes(&x), vec![0; 4 * x.len()]], &launch)[1]);
    let right: Vec<f32> = (0..x.len()).map(|i| x[i % rows * columns + i / rows]).collect();
    assert_eq!(got, right);
}

#[test]
fn dynamic_shared_memory_is_as_long_as_the_launch_says() {
    // 200 KiB, for which the kernel needs consent.
    for n in [7, 12_800] {
        let x = numbers(2 * 4 * n);
        let mut launch = Launch::new("reversed", [2, 1, 1], [96, 1, 1], vec![at(0), at(1), int(n as u32)]);
        launch.dynamic = 16 * n as u32;
        launch.consent = if n > 3000 { launch.dynamic } else { 0 };
        let got = floats(&run(RIGHT, &[bytes(&x), vec![0; 4 * x.len()]], &launch)[1]);
        let right: Vec<f32> = x.chunks(4 * n).flat_map(|part| part.chunks(4).rev().flatten().copied()).collect();
        assert!(got == right, "{n} vectors");
    }
}

#[test]
fn indices_have_three_dims() {
    let (grid, block) = ([3, 2, 4], [4, 2, 8]);
    let launch = Launch::new("places", grid, block, vec![at(0)]);
    let [blocks, threads] = [grid, block].map(|extent| extent.iter().product::<u32>() as usize);
    let got = words(&run(RIGHT, &[vec![0; 32 * blocks * threads]], &launch)[0]);
    let split = |i: usize, extent: [u32; 3]| {
        let [x, y, _] = extent.map(|n| n as usize);
        [i % x, i / x % y, i / x / y]
    };
    for (i, got) in got.chunks(8).enumerate() {
        let (b, t) = (split(i / threads, grid), split(i % threads, block));
        let right = [b[0], b[1], b[2], t[0], t[1], t[2], i % threads / 32 * 32, 32_408].map(|n| n as i32);
        assert_eq!(got, right, "thread {i}");
    }
}

#[test]
fn parameters_have_any_size() {
    let x = numbers(32);
    let fields = [at(0), value(&2.0f32.to_le_bytes()), value(&7u16.to_le_bytes()), value(&[1, 0])].concat();
    let arguments = vec![
        fields,
        value(&[3]),
        value(&256u16.to_le_bytes()),
        value(&(-9i32).to_le_bytes()),
        value(&0.5f32.to_le_bytes()),
        value(&0.25f64.to_le_bytes()),
        at(1),
    ];
    let launch = Launch::new("parameters", [1, 1, 1], [32, 1, 1], arguments);
    let got = floats(&run(RIGHT, &[bytes(&x), vec![0; 128]], &launch)[1]);
    assert_eq!(got, x.iter().map(|x| -(x * 2.0 + 7.0) + 3.0 + 256.0 - 9.0 + 0.5 + 0.25).collect::<Vec<_>>());
}

#[test]
fn there_may_be_many_parameters() {
    let number = |i: u64| value(&(i + 1).to_le_bytes()[..1 << (i % 4)]);
    let arguments = [at(0)].into_iter().chain((0..12).map(number)).collect();
    let launch = Launch::new("many_parameters", [1, 1, 1], [1, 1, 1], arguments);
    let factors = [1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31];
    let sum: i32 = factors.iter().zip(1..).map(|(factor, i)| factor * i).sum();
    assert_eq!(floats(&run(RIGHT, &[vec![0; 4]], &launch)[0]), [sum as f32]);
}

#[test]
fn instructions_give_each_lane_what_plain_arithmetic_gives() {
    for trial in trials::all() {
        let out = trial.operands.len();
        let arguments = (0..=out).map(at).chain([value(&[0; 8])]).collect();
        let launch = Launch::new(trial.work.name, [1, 1, 1], [trial.work.threads as u32, 1, 1], arguments);
        let buffers: Vec<Vec<u8>> = trial.operands.iter().cloned().chain([vec![0xff; 4 * trial.right.len()]]).collect();
        let got = floats(&run(&trial.work.source, &buffers, &launch)[out]);
        let error = trial.error(&got);
        assert!(error <= trial.bound, "{}: {error:e}\n{got:?}\n{:?}", trial.what, trial.right);
    }
}

#[test]
fn wrong_uses_of_matrices_and_of_asynchronous_copies_are_found() {
    let mistakes = [
        ("no_wait", "719", "early: it reads byte"),
        ("waits_for_too_few", "719", "early: it reads byte"),
        ("no_commit", "719", "early: it reads byte"),
        ("waits_without_barrier", "719", "race: it"),
        ("fills_too_early", "719", "race: it"),
        ("source_changes", "719", "race: it"),
        ("copy_out_of_line", "716", "cp.async: 0x"),
        ("copies_from_outside", "700", "thread (31, 0, 0): it reads 16 bytes at 0x"),
        ("matrix_without_barrier", "719", "race: it reads byte"),
        ("matrix_out_of_line", "716", "thread (0, 0, 0): ldmatrix: 0x"),
        ("matrix_elsewhere", "700", "is not in shared memory"),
        ("matrix_in_one_bank", "719", "thread (1, 0, 0): bank conflict"),
        ("half_a_product", "719", "waits at mma of line 116 for thread (16, 0, 0), which has returned"),
    ];
    for (kernel, status, message) in mistakes {
        for order in ORDERS {
            let launch = Launch::new(kernel, [1, 1, 1], [32, 1, 1], vec![at(0), at(1)]);
            let why = STAND_IN.run(EARLY, &[vec![1; 512], vec![0; 128]], &[launch], order).err();
            let why = why.unwrap_or_else(|| panic!("{kernel}, {order}: no error"));
            assert!(why.contains(&format!("status {status}")) && why.contains(message), "{kernel}, {order}: {why}");
        }
    }
}

/// Error that the driver reports of a kernel with a mistake, on 64 numbers.
fn error(kernel: &str, threads: u32, arguments: Vec<Vec<Field>>, order: &str) -> String {
    let blocks = if kernel == "between_blocks" { 2 } else { 1 };
    let launch = Launch::new(kernel, [blocks, 1, 1], [threads, 1, 1], arguments);
    let launch = Launch { dynamic: 4 * 63, ..launch };
    let got = STAND_IN.run(WRONG, &[bytes(&numbers(64))], &[launch], order);
    got.err().unwrap_or_else(|| panic!("{kernel}, {order}: no error"))
}

#[test]
fn races_are_found_in_every_order() {
    let mistakes = [
        ("no_barrier", 64, "static shared memory"),
        ("one_barrier_too_few", 64, "static shared memory"),
        ("shuffle_for_barrier", 32, "static shared memory"),
        ("half_a_warp", 32, "static shared memory"),
        ("lost_update", 32, "an allocation"),
        ("between_blocks", 32, "a thread of another block"),
    ];
    for (kernel, threads, place) in mistakes {
        for order in ORDERS {
            let why = error(kernel, threads, vec![at(0)], order);
            let is_race = why.contains("status 719") && why.contains("race") && why.contains(place);
            assert!(is_race && why.contains(&format!("kernel `{kernel}`, block (")), "{kernel}, {order}: {why}");
        }
    }
}

#[test]
fn threads_that_do_not_meet_are_found() {
    let mistakes = [
        ("returns_early", 32, "waits at __syncthreads() of line 59 for thread (5, 0, 0), which has returned"),
        ("two_barriers", 32, "divergence: it is at the barrier of line"),
        ("half_a_shuffle", 32, "which has returned"),
        ("two_shuffles", 32, "divergence: it is at __shfl_"),
        ("foreign_mask", 32, "mask 0xffff lacks its own lane"),
        ("lanes_that_are_not_there", 20, "mask 0xffffffff names lanes that the block lacks"),
    ];
    for (kernel, threads, message) in mistakes {
        for order in ORDERS {
            let why = error(kernel, threads, vec![at(0)], order);
            assert!(why.contains("status 719") && why.contains(message), "{kernel}, {order}: {why}");
        }
    }
}

#[test]
fn accesses_outside_memory_are_found() {
    for kernel in ["writes_outside", "reads_outside"] {
        for by in [64, -1, 1 << 28] {
            let why = error(kernel, 32, vec![at(0), int(by as u32)], "forward");
            let message =
                format!("block (0, 0, 0), thread (3, 0, 0): it {} 4 bytes at 0x", &kernel[..kernel.len() - 8]);
            assert!(why.contains("status 700") && why.contains(&message), "{kernel}: {why}");
        }
    }
    let others = [
        ("outside_shared", 64, "status 700", "thread (63, 0, 0): it writes 4 bytes"),
        ("beyond_an_array", 32, "status 700", "thread (31, 0, 0): index 32 in line 124"),
        ("out_of_line", 4, "status 716", "thread (0, 0, 0): it accesses 0x"),
    ];
    for (kernel, threads, status, message) in others {
        let why = error(kernel, threads, vec![at(0)], "forward");
        assert!(why.contains(status) && why.contains(message), "{kernel}: {why}");
    }
}

#[test]
fn what_was_not_written_is_no_number() {
    for (kernel, threads, place) in [("never_written", 64, 63), ("lane_outside", 32, 15)] {
        let launch = Launch::new(kernel, [1, 1, 1], [threads, 1, 1], vec![at(0)]);
        let got = floats(&STAND_IN.run(WRONG, &[vec![0; 256]], &[launch], "forward").unwrap()[0]);
        for (i, x) in got.iter().enumerate() {
            assert_eq!(x.is_nan(), i == place, "{kernel}: {x} at {i}");
        }
    }
}

#[test]
fn launches_stay_within_the_limits_of_the_hardware() {
    let launch = |threads: [u32; 3], dynamic, consent| {
        let launch = Launch::new("bounded", [1, 1, 1], threads, vec![at(0)]);
        let launch = Launch { dynamic, consent, ..launch };
        STAND_IN.run(WRONG, &[vec![0; 256]], &[launch], "forward").err()
    };
    let refused = |why: Option<String>, message: &str| {
        assert!(why.as_ref().is_some_and(|why| why.contains(message)), "{message}: {why:?}");
    };
    let (kib, most) = (48 << 10, 227 << 10);
    assert_eq!([launch([32, 1, 1], kib, 0), launch([8, 4, 1], most, most)], [None, None]);
    refused(launch([33, 1, 1], 0, 0), "cuLaunchKernel: status 701");
    refused(launch([32, 33, 1], 0, 0), "cuLaunchKernel: status 1");
    refused(launch([1, 1, 65], 0, 0), "cuLaunchKernel: status 1");
    refused(launch([32, 1, 1], kib + 1, 0), "cuLaunchKernel: status 1");
    refused(launch([32, 1, 1], 0, most + 1), "cuFuncSetAttribute: status 1");
    let kernel = "extern \"C\" __global__ void large(float* out) {
        __shared__ float part[12289];
        part[threadIdx.x] = 1.0f;
        out[0] = part[0];
    }";
    let launch = Launch::new("large", [1, 1, 1], [1, 1, 1], vec![at(0)]);
    let run = |source: &str| STAND_IN.run(source, &[vec![0; 4]], std::slice::from_ref(&launch), "forward").err();
    refused(run(kernel), "kernel `large` has 49156 bytes of static shared memory, more than 49152");
    assert_eq!(run(&kernel.replace("12289", "12288")), None);
    refused(run(&kernel.replace("part[0]", "part[0")), "kernel:4:");
}

#[test]
fn a_copy_beyond_an_allocation_is_found() {
    let program = STAND_IN.compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu_model/guards.c"));
    let sides = [("0", "100", "0 "), ("-1", "1", "700 the 256 bytes before"), ("100", "1", "700 the 256 bytes behind")];
    for (offset, bytes, message) in sides {
        let ran = Command::new(&program).args([offset, bytes]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.starts_with(message), "{said}");
    }
}
