//! The command line; see [`meshwright::cli`].

fn main() -> std::process::ExitCode {
    meshwright::cli::main()
}
