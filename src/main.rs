//! The command line; see [`meshwright::cli`].

use device::memory::Guarded;
use mimalloc::MiMalloc;

/// Plans are made of many small, short-lived lists: a sixth faster than with the C library's.
#[global_allocator]
static ALLOCATOR: Guarded<MiMalloc> = Guarded::new(MiMalloc, signal_hook::low_level::exit);

fn main() -> std::process::ExitCode {
    meshwright::cli::main()
}
