//! The command line; see [`meshwright::cli`].

/// Plans are made of many small, short-lived lists: a sixth faster than with the C library's.
#[cfg(feature = "train")]
#[global_allocator]
static ALLOCATOR: device::memory::Guarded<mimalloc::MiMalloc> =
    device::memory::Guarded::new(mimalloc::MiMalloc, signal_hook::low_level::exit);

fn main() -> std::process::ExitCode {
    meshwright::cli::main()
}
