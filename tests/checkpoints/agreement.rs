//! Processes that were started differently: all end before the first step, and name what differs with both values.

use super::faults::{CONFIG, ended, folder};
use super::launched::team;
use super::runs::{Folder, text};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const BASE: &str = "train --parallel dp=2 --mbs 1";
const FILES: &str =
    "config.json --data text.txt --seq 16 --global-batch 4 --steps 3 --eval-every 0 --valid-fraction 0.1";

/// The refusal of two processes, of which the second has other words, and which both give.
fn refusal(folder: &Folder, [first, second]: [&str; 2]) -> String {
    let told = team(folder, &[(":", first), (":", second)]).into_iter().map(ended).collect::<Vec<_>>();
    for (status, message) in &told {
        let named = message.contains("error[MW0716]: the processes were started differently: ");
        assert!(*status == Some(1) && named, "{second}\n{status:?} {message}");
    }
    told[0].1.clone()
}

/// Words that the second process has more than the first, and what differs then.
const FLAGS: [(&str, &str); 34] = [
    ("--lr 0.001", "--lr is 0.002 in process 0 on "),
    ("--min-lr 0.001", "--min-lr is 0.0002 in process 0 on "),
    ("--warmup 3", "--warmup is 40 in"),
    ("--lr-schedule constant", "--lr-schedule is cosine in"),
    ("--decay-steps 2 --lr-schedule wsd", "--decay-steps is not given in"),
    ("--seed 5", "--seed is 0 in"),
    ("--optimizer sgd", "--optimizer is adamw in"),
    ("--optimizer muon", "--optimizer is adamw in"),
    ("--beta1 0.8", "--beta1 is 0.9 in"),
    ("--beta2 0.8", "--beta2 is 0.95 in"),
    ("--eps 0.1", "--eps is 0.00000001 in"),
    ("--weight-decay 0.2", "--weight-decay is 0.1 in"),
    ("--clip 2", "--clip is 1 in"),
    ("--skip-nonfinite 1", "--skip-nonfinite is 0 in"),
    ("--precision bf16", "--precision is f32 in"),
    ("--eval-batches 2", "--eval-batches is 4 in"),
    ("--final-eval-batches 1", "--final-eval-batches is not given in"),
    ("--save-every 2", "--save-every is 0 in"),
    ("--keep-last 2", "--keep-last is 3 in"),
    ("--check-replicas=1", "--check-replicas is 0 in"),
    ("--compare-data", "--compare-data is false in"),
    ("--silence 9", "--silence is 8 in"),
    ("--timeout 70", "--timeout is 60 in"),
    ("--no-fusion", "--no-fusion is false in"),
    ("--no-graphs", "--no-graphs is false in"),
    ("--time-products", "--time-products is false in"),
    ("--poison", "--poison is false in"),
    ("--profile", "--profile is false in"),
    ("--trace t.json", "--trace is not given in"),
    ("--trace t.json --trace-step 1", "--trace-step is not given in"),
    ("--inject slow=1:1", "--inject is not given in"),
    ("--sums exact", "--sums is not given in"),
    ("--sp", "--parallel is "),
    ("--zero 1", "--parallel is "),
];

/// The same for settings of an optimizer that the first process has, too.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("--optimizer sgd", "--momentum 0.5", "--momentum is 0 in"),
    ("--optimizer muon", "--nesterov=false", "--nesterov is true in"),
    ("--optimizer muon", "--matrices whole", "--matrices is split in"),
];

/// Options of the first process, and of the second one in their place.
const CHANGES: [(&str, &str, &str); 10] = [
    ("--steps 3", "--steps 4", "--steps is 3 in"),
    ("--seq 16", "--seq 8", "--seq is 16 in"),
    ("--global-batch 4", "--global-batch 8", "--global-batch is 4 in"),
    ("--eval-every 0", "--eval-every 1", "--eval-every is 0 in"),
    ("--valid-fraction 0.1", "--valid-fraction 0.3", "--valid-fraction is 0.1 in"),
    ("dp=2", "tp=2", "--parallel is dp=2,"),
    ("--out a", "--out b", "/a in process 0 on "),
    ("config.json", "other.json", "the checksum of the model is "),
    ("text.txt", "same-length.txt", "the checksum of the data is "),
    ("text.txt", "longer.txt", "the number of training tokens is "),
];

#[test]
fn every_setting_and_all_data_are_compared() {
    let folder = folder();
    folder.write("other.json", &CONFIG.replace("\"n_head\": 2", "\"n_head\": 4"));
    folder.write("same-length.txt", &text().replace('e', "i"));
    folder.write("longer.txt", &format!("{0}{0}", text()));
    let whole = format!("{BASE} {FILES} --out a");
    let flags = FLAGS.iter().map(|(words, named)| ([whole.clone(), format!("{whole} {words}")], *named));
    let changes = CHANGES.iter().map(|(from, to, named)| ([whole.clone(), whole.replace(from, to)], *named));
    let settings = SETTINGS.iter().map(|(both, words, named)| {
        let first = format!("{whole} {both}");
        ([first.clone(), format!("{first} {words}")], *named)
    });
    let missed = Mutex::new(Vec::new());
    let cases = Mutex::new(flags.chain(changes).chain(settings).enumerate());
    thread::scope(|scope| {
        let work = || {
            while let Some((number, (words, named))) = { cases.lock().unwrap().next() } {
                // Each run has a folder of its own.
                let words = words.map(|words| words.replace("--out ", &format!("--out {number}/")));
                let message = refusal(&folder, [&words[0], &words[1]]);
                if !message.contains(named) {
                    missed.lock().unwrap().push(format!("{}\n{message}", words[1]));
                }
                assert!(!folder.path(&number.to_string()).exists(), "{} leaves a folder", words[1]);
            }
        };
        (0..4).for_each(|_| drop(scope.spawn(work)));
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn tokens_and_weights_are_compared() {
    let folder = folder();
    let ids = |at: usize| ((at * 7919) % 251) as u8;
    let mut tokens: Vec<u8> = (0..400_000).map(|at| if at % 2 == 0 { ids(at) } else { 0 }).collect();
    fs::write(folder.path("one.bin"), &tokens).unwrap();
    // An id in the middle of the data, which no block has.
    tokens[200_130] ^= 1;
    fs::write(folder.path("other.bin"), &tokens).unwrap();
    let of = |data: &str, more: &str| {
        format!("{BASE} {} --data-format raw-u16 --valid {data} --out a {more}", FILES.replace("text.txt", data))
    };
    let [one, other] = ["one.bin", "other.bin"].map(|data| of(data, "--compare-data"));
    let message = refusal(&folder, [&one, &other]);
    assert!(message.contains("the checksum of the data is "), "{message}");
    // Weights of another seed.
    for (seed, name) in [(1, "first"), (2, "second")] {
        folder.answer(&format!("train {FILES} --seed {seed} --save-every 3 --out {name}"));
        folder.answer(&format!("export-weights {name} --out {name}-weights"));
    }
    let from = |name: &str| format!("{BASE} {FILES} --out a --init-from {name}");
    let message = refusal(&folder, [&from("first-weights"), &from("second-weights")]);
    assert!(message.contains("the checksum of the first weights is "), "{message}");
    let message = refusal(&folder, [&from("first-weights"), &format!("{BASE} {FILES} --out a")]);
    assert!(message.contains("--init-from is given in process 0 on "), "{message}");
    // Checkpoints of one seed and other learning rates have the same settings, and differ.
    for (lr, name) in [("0.1", "third"), ("0.2", "fourth")] {
        folder.answer(&format!("train {FILES} --lr {lr} --save-every 3 --out {name}"));
    }
    let resumed = |name: &str| {
        format!("{BASE} {} --lr 0.1 --min-lr 0.01 --out a --resume {name}", FILES.replace("--steps 3", "--steps 4"))
    };
    let message = refusal(&folder, [&resumed("third"), &resumed("fourth")]);
    let named = ["/third in process 0 on ", "the checksum of the checkpoint is "];
    assert!(named.iter().all(|named| message.contains(named)), "{message}");
}

#[test]
fn who_cannot_take_part_says_why_to_all() {
    let folder = folder();
    let whole = format!("{BASE} {FILES} --out a");
    // The first is found before the processes meet, the second behind it, the third before the options are whole.
    for (from, to, why) in [
        ("config.json", "none.json", "has failed before the meeting: there is no file none.json"),
        ("text.txt", "none.txt", "cannot take part: no training text at none.txt"),
        ("dp=2", "dp=1", "has failed before the meeting: 2 processes do not divide the 1 devices"),
        ("--out a", "--out a --sums engine", "has failed before the meeting: `sums` is `engine`"),
        ("--out a", "--out a --nonsense", "has failed before the meeting: unexpected argument '--nonsense' found"),
        ("--out a", "--out a --config none.toml", "has failed before the meeting: cannot read none.toml"),
    ] {
        for wrong in [0, 1] {
            let began = Instant::now();
            let mut words = [whole.clone(), whole.clone()];
            words[wrong] = whole.replace(from, to);
            // Who knows the secret is no stranger, so that nobody waits for another one to come in its place.
            let before = "export MESHWRIGHT_SECRET='what both processes know'";
            let told: Vec<_> =
                team(&folder, &[(before, &words[0]), (before, &words[1])]).into_iter().map(ended).collect();
            let (status, message) = &told[1 - wrong];
            assert!(*status == Some(1) && message.contains(&format!("process {wrong} on ")), "{message}");
            assert!(message.contains(why), "{message}");
            assert!(matches!(told[wrong].0, Some(1 | 2)) && !told[wrong].1.contains(" process "), "{}", told[wrong].1);
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        }
    }
}

/// The text of all files below a folder.
fn texts(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: std::path::PathBuf| match path.is_dir() {
        true => texts(&path),
        false => String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned(),
    };
    entries.map(text).collect()
}

#[test]
fn a_secret_stands_in_nothing_that_is_written() {
    let folder = folder();
    let secret = "what only members know";
    // The log is longer than a pipe.
    let before = format!("exec 2> log.$RANK; export MESHWRIGHT_SECRET='{secret}' MESHWRIGHT_LOG=trace");
    let train = format!("{BASE} {FILES} --out a --trace trace.json --save-every 1");
    // A run that goes well, and one whose second step fails.
    for more in ["", "--steps 9 --resume a --silence 2 --timeout 2 --inject stuck=5:1"] {
        let words = if more.is_empty() { train.clone() } else { train.replace("--steps 3", more) };
        let children = team(&folder, &[(&before, &words), (&before, &words)]);
        let arguments =
            children.iter().map(|child| fs::read(format!("/proc/{}/cmdline", child.id())).unwrap_or_default());
        let arguments: Vec<String> = arguments.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
        let told: Vec<_> = children.into_iter().map(ended).collect();
        assert!(told.iter().all(|(status, _)| *status == Some(if more.is_empty() { 0 } else { 5 })), "{told:?}");
        // A shell that has not yet become the program has it among its words.
        assert!(arguments.iter().all(|words| words.starts_with("sh\0") || !words.contains(secret)));
        let written = texts(&folder.path(""));
        assert!(written.len() > 1000 && !written.contains(secret));
    }
    assert!(folder.path("a/faults").is_dir() && folder.path("trace.json").is_file());
}
