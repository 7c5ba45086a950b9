//! The log of the command line: silent unless the environment asks, and on standard error alone.

use std::process::{Command, Output};

/// Runs `compile` up to a pass, with an environment variable.
fn compiled(stop_after: &str, variable: Option<(&str, &str)>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(["compile", "tiny-llama", "--parallel", "pp=2", "--stop-after", stop_after]);
    command.env_remove("MESHWRIGHT_LOG").env_remove("MESHWRIGHT_DEBUG").envs(variable);
    command.output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_span_of_each_pass_is_logged_with_its_time() {
    let silent = compiled("schedule", None);
    assert!(silent.status.success() && silent.stderr.is_empty(), "{}", stderr(&silent));
    let logged = compiled("schedule", Some(("MESHWRIGHT_LOG", "meshwright_compiler=debug")));
    assert_eq!(logged.stdout, silent.stdout);
    let log = stderr(&logged);
    let closed = |pass: &str| {
        let name = format!("pass{{name=\"{pass}\"}}");
        log.lines()
            .any(|line| line.contains(&name) && line.contains("meshwright_compiler") && line.contains("time.busy"))
    };
    for pass in ["differentiate", "build_mesh", "collectives", "partition", "schedule"] {
        assert!(closed(pass), "no time of {pass} in\n{log}");
    }
    // A pass that does not run reports nothing.
    assert!(!closed("slice") && !closed("codegen"), "{log}");
    assert!(log.contains("stage 1") && log.contains("order of the pipeline ranks"), "{log}");
    assert!(!log.contains("after propagate"), "the text after a pass is of level trace\n{log}");
}

#[test]
fn a_filter_chooses_crates_and_levels() {
    let of = |filter: &str| stderr(&compiled("annotate", Some(("MESHWRIGHT_LOG", filter))));
    assert_eq!(of("meshwright_autotune=trace"), "");
    assert_eq!(of("meshwright=info"), "");
    assert!(of("meshwright_compiler=trace").contains("after annotate:\nmesh @mesh = [pp=2]"));
    let refused = compiled("annotate", Some(("MESHWRIGHT_LOG", "meshwright_compiler=loud")));
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("`MESHWRIGHT_LOG=meshwright_compiler=loud` is not a list"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn the_variable_of_earlier_builds_names_the_new_one() {
    let output = compiled("annotate", Some(("MESHWRIGHT_DEBUG", "2")));
    assert!(output.status.success());
    let note = "note: MESHWRIGHT_DEBUG is now MESHWRIGHT_LOG, for example MESHWRIGHT_LOG=meshwright_compiler=debug\n";
    assert_eq!(stderr(&output), note);
}
