//! `meshwright completions` and `meshwright man`: what a shell and `man` need to know of the command line.

use crate::cli::Cli;
use crate::error::Error;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

/// Print a script that completes subcommands and options in a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright completions bash > completions.bash
  meshwright completions zsh > _meshwright")]
pub(in crate::cli) struct Completions {
    /// Shell
    shell: Shell,
}

/// Print the manual page of the command, or of a subcommand
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright man > meshwright.1
  meshwright man plan > meshwright-plan.1")]
pub(in crate::cli) struct Manual {
    /// Subcommand
    subcommand: Option<String>,
}

impl Completions {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "meshwright", &mut script);
        String::from_utf8(script).map_err(|why| Error::fault("completions", why))
    }
}

impl Manual {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        let mut page = Vec::new();
        Man::new(self.command()?).render(&mut page).map_err(|why| Error::fault("man", why))?;
        String::from_utf8(page).map_err(|why| Error::fault("man", why))
    }

    /// The command that the page is of, under its whole name.
    fn command(&self) -> Result<Command, Error> {
        let mut all = Cli::command();
        all.build();
        let Some(name) = &self.subcommand else { return Ok(all) };
        let found = all.find_subcommand(name).cloned();
        found
            .map(|command| command.version(env!("CARGO_PKG_VERSION")))
            .ok_or_else(|| Error::Usage(format!("`{name}` is no subcommand: meshwright --help lists them")))
    }
}
