//! Folders of others: a run writes no file outside of its own folder, whatever links and options it finds there.

use super::runs::{self, Folder};
use std::fs;
use std::os::unix::fs::symlink;

const TRAIN: &str = "train tiny-gpt2 --data text.txt --valid-fraction 0.3 --seq 16 --global-batch 4 --eval-every 0 \
    --final-eval-batches 1 --steps 2 --save-every 2";

#[test]
fn a_run_follows_no_link_of_its_folder() {
    let folder = Folder::new();
    folder.write("text.txt", &runs::text());
    for name in ["run.lock", "run.toml", "metrics.jsonl"] {
        for target in ["precious", "nowhere"] {
            folder.write("precious", "text of the user");
            fs::create_dir_all(folder.path("a")).unwrap();
            symlink(folder.path(target), folder.path(&format!("a/{name}"))).unwrap();
            let (code, stderr) = folder.failure(&format!("{TRAIN} --out a"));
            let said = format!("a/{name}: it is a symbolic link, not a file");
            assert!(code == 1 && stderr.contains("error[MW0801]") && stderr.contains(&said), "{code:?} {stderr}");
            assert!(stderr.contains("remove the link, or choose another --out"), "{stderr}");
            assert_eq!(
                (folder.read("precious").as_str(), folder.path("nowhere").exists()),
                ("text of the user", false)
            );
            fs::remove_dir_all(folder.path("a")).unwrap();
        }
    }
    // The folder itself is named by the user.
    fs::create_dir(folder.path("elsewhere")).unwrap();
    symlink("elsewhere", folder.path("b")).unwrap();
    folder.answer(&format!("{TRAIN} --out b"));
    assert!(folder.path("elsewhere/step-00000002/manifest.json").exists());
}

#[test]
fn a_resumed_folder_decides_no_output() {
    let folder = Folder::new();
    folder.write("text.txt", &runs::text());
    folder.answer(&format!("{TRAIN} --out a"));
    let options = folder.read("a/run.toml");
    folder.write("precious", "text of the user");
    for trace in [folder.path("precious").display().to_string(), "a/../precious".into(), "a/trace.json".into()] {
        folder.write("a/run.toml", &format!("trace = {trace:?}\n{options}"));
        let (code, stderr) = folder.failure("train --resume a --steps 3");
        assert!(code == 1 && stderr.contains("error[MW0805]") && stderr.contains("a/run.toml"), "{stderr}");
        assert!(stderr.contains(&format!("`trace = {trace:?}`")) && stderr.contains("give --trace FILE"), "{stderr}");
    }
    folder.answer("train --resume a --steps 3 --trace own.json");
    assert!(folder.path("own.json").exists() && folder.read("precious") == "text of the user");
}
