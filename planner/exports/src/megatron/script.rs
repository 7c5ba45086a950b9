//! The text of a script: variables of the environment, arrays of flags, and the command that starts the processes.

use crate::assumption::{Assumption, Variable};
use crate::job::Job;
use crate::launch;
use crate::megatron::JobFlags;

/// The script.
pub(super) fn text(job: &Job, flags: &JobFlags) -> String {
    let JobFlags { layout, assumed, model, .. } = flags;
    let mut text = format!("STACK={} # whose prediction this is\n", job.stack);
    text += &environment(assumed);
    text += &array("FLAGS", layout);
    text += "# What the prediction assumes, with what Megatron-LM does otherwise.\n";
    let lines: Vec<String> = assumed
        .iter()
        .filter(|written| !written.flags.is_empty())
        .flat_map(|written| {
            let why = format!("# {}; without: {}", written.name, written.without);
            std::iter::once(why).chain(written.flags.iter().cloned())
        })
        .collect();
    text += &array("ASSUMED", &lines);
    let about = if model.is_empty() { "# The flags of the model are yours.\n" } else { "" };
    text += about;
    text += &array("MODEL", model);
    text += "# Data and learning rate are yours: these measure steps on made-up data.\n";
    text += &array("DATA", &["--mock-data".into(), "--tokenizer-type NullTokenizer".into()]);
    text += &array("OPTIMIZER", &["--lr 1e-4".into(), "--train-iters 50".into(), "--eval-iters 0".into()]);
    let arrays = ["FLAGS", "ASSUMED", "MODEL", "DATA", "OPTIMIZER"].map(|name| format!("\"${{{name}[@]}}\""));
    text + &launch::bash(job, &format!("pretrain_gpt.py {} \"$@\"", arrays.join(" ")))
}

fn environment(assumed: &[Assumption]) -> String {
    assumed.iter().flat_map(|written| &written.environment).map(Variable::bash).collect()
}

fn array(name: &str, lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("    {line}\n")).collect();
    format!("{name}=(\n{lines})\n")
}
