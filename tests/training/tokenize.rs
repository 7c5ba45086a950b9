//! Tokenisation, from text to a run: ids are those that the Python library gave, in every kind of file.

mod bounded;

use meshwright::runtime::data::tokens::{TokenData, TokenFile};
use meshwright::tokenize::{Done, Error, Tokenize, tokenize};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A frame of `{"text": "x"}` and one of `{"text": "xx"}`, each with a checksum and a newline, as `zstd` writes them.
const FRAMES: &[u8] = include_bytes!("../tokenize/lines.jsonl.zst");

fn run(folder: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(args.split_whitespace()).current_dir(folder).output().unwrap()
}

fn answer(folder: &Path, args: &str) -> Value {
    let output = run(folder, args);
    assert!(output.status.success(), "meshwright {args}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Texts, and the ids that `tokenizers` of Python gave for them.
fn expected() -> Vec<(String, Vec<u32>)> {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../tokenize/expected.json")).unwrap();
    let ids = |case: &Value| case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    cases.iter().map(|case| (case["text"].as_str().unwrap().to_string(), ids(case))).collect()
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tokenizer.json"), include_str!("../tokenize/tokenizer.json")).unwrap();
    folder
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn documents(prefix: &Path) -> Vec<Vec<u32>> {
    let file = TokenFile::open(prefix, None, None).unwrap().unwrap();
    (0..file.documents()).map(|number| file.document(number).unwrap()).collect()
}

#[test]
fn ids_are_those_of_the_python_library() {
    let folder = folder();
    let cases = expected();
    let line = |(text, _): &(String, Vec<u32>)| json!({"id": 1, "body": text, "text": 5}).to_string() + "\n";
    let lines: Vec<String> = cases.iter().map(line).collect();
    let (first, rest) = (lines[..2].concat() + " \n", lines[2..].concat());
    write(folder.path(), "a.jsonl", first.as_bytes());
    // Members of gzip follow each other, as parallel compressors write them.
    let cut = rest.find('\n').unwrap() + 1;
    write(folder.path(), "b.json.gz", &[gzip(&rest.as_bytes()[..cut]), gzip(&rest.as_bytes()[cut..])].concat());
    let args = "tokenize a.jsonl b.json.gz --tokenizer tokenizer.json --text-key body --out out --format json";
    let told = answer(folder.path(), args);
    let ids: Vec<Vec<u32>> = cases.iter().map(|(_, ids)| ids.clone()).collect();
    assert_eq!(documents(&folder.path().join("out")), ids);
    assert_eq!((&told["documents"], &told["tokens"]), (&ids.len().into(), &ids.concat().len().into()));
    assert_eq!((&told["tokenizer"]["vocabulary"], &told["eos"]), (&340.into(), &Value::Null));
    assert_eq!(told["largest"], *ids.concat().iter().max().unwrap());
    let record: Value = serde_json::from_slice(&fs::read(folder.path().join("out.json")).unwrap()).unwrap();
    assert_eq!(record, told);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6, "no temporary file is left");
}

#[test]
fn folders_and_compressed_files_become_documents_with_ends() {
    let folder = folder();
    let cases = expected();
    write(folder.path(), "in/a.txt", cases[0].0.as_bytes());
    write(folder.path(), "in/b/deep.md.gz", &gzip(cases[1].0.as_bytes()));
    write(folder.path(), "in/binary.bin", b"\0\x01");
    write(folder.path(), "in/empty.txt", b"");
    write(folder.path(), "in/packed.tar.gz", &gzip(b"\0\x01\x02"));
    write(folder.path(), "in/z.jsonl.zst", FRAMES);
    write(folder.path(), "in/z2.jsonl", b"{\"text\": \"\"}\n");
    let end = |ids: &[u32]| [ids, &[0]].concat();
    let x = cases.iter().find(|(text, _)| text == "x").unwrap().1[0];
    let wanted = [end(&cases[0].1), end(&cases[1].1), vec![x, 0], vec![x, x, 0]];
    for token in ["0", "<|endoftext|>"] {
        let args = format!("tokenize in --tokenizer . --append-eos {token} --out out --format json");
        let told = answer(folder.path(), &args);
        assert_eq!(documents(&folder.path().join("out")), wanted);
        assert_eq!((&told["eos"], &told["empty"]), (&0.into(), &1.into()));
        let counts: Vec<u64> =
            told["sources"].as_array().unwrap().iter().map(|s| s["documents"].as_u64().unwrap()).collect();
        assert_eq!(counts, [1, 1, 2, 0]);
    }
    let data = TokenData::open(&folder.path().join("out"), Some(&folder.path().join("out.bin")), None, None, 0.1);
    assert_eq!(data.unwrap().unwrap().train.documents(), 4);
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_written() {
    let folder = folder();
    write(folder.path(), "good.txt", b"text");
    write(folder.path(), "bad.jsonl", b"{\"text\": \"a\"}\n\n{\"text\": 5}\n");
    write(folder.path(), "cut.jsonl", b"{\"text\": \"a\"}\n{\"text\": \"b");
    write(folder.path(), "latin.txt", &[&b"line\n"[..], &[0xe9], &[b'a'; 9000]].concat());
    let packed = gzip(b"some text");
    write(folder.path(), "cut.txt.gz", &packed[..packed.len() - 8]);
    let mut spoiled = FRAMES.to_vec();
    *spoiled.last_mut().unwrap() ^= 1;
    write(folder.path(), "spoiled.jsonl.zst", &spoiled);
    write(folder.path(), "binary", b"\0");
    write(folder.path(), "none.json", b"{\"model\": {}}");
    write(folder.path(), "blank.jsonl", b"\n{\"text\": \"\"}\n");
    for (args, code, said) in [
        ("good.txt bad.jsonl", "MW0713", "bad.jsonl:3: invalid type: integer `5`, expected a string"),
        ("cut.jsonl", "MW0713", "cut.jsonl:2: EOF while parsing a string"),
        ("bad.jsonl --text-key body", "MW0713", "bad.jsonl:1: there is no key `body`"),
        ("latin.txt", "MW0713", "latin.txt:2: the text is not UTF-8"),
        ("cut.txt.gz", "MW0701", "cannot read cut.txt.gz"),
        ("spoiled.jsonl.zst", "MW0701", "the checksum of a frame is not that of its bytes"),
        ("binary", "MW0702", "no text at binary"),
        ("blank.jsonl", "MW0702", "no text at blank.jsonl"),
        ("nowhere", "MW0701", "nowhere: there is no such file"),
        ("good.txt --append-eos <eos>", "MW0805", "`<eos>` is no token of tokenizer.json, whose ids are below 340"),
        ("good.txt --append-eos 340", "MW0805", "`340` is no token"),
        ("good.txt --tokenizer none.json", "MW0714", "none.json is no tokenizer"),
        ("good.txt --tokenizer nowhere", "MW0714", "nowhere is no tokenizer: No such file"),
        ("good.txt --out good.txt/out", "MW0801", "cannot write good.txt/out"),
        ("good.txt bad.jsonl --out out/of/data", "MW0713", "bad.jsonl:3"),
    ] {
        let given =
            |flag: &str, value: &str| if args.contains(flag) { String::new() } else { format!(" {flag} {value}") };
        let line = format!("tokenize {args}{}{}", given("--tokenizer", "tokenizer.json"), given("--out", "out"));
        let output = run(folder.path(), &line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
        assert!(stderr.contains(&format!("error[{code}]")) && stderr.contains(said), "{line}: {stderr}");
    }
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let made: Vec<String> = names.filter(|name| name.starts_with("out") || name.starts_with('.')).collect();
    assert!(made.is_empty(), "{made:?}");
}

#[test]
fn who_stops_a_tokenisation_keeps_what_was_there() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write(folder.path(), "a.txt", b"text");
    write(folder.path(), "out.bin", b"old");
    let (inputs, tokenizer, out) = ([at("a.txt")], at("tokenizer.json"), at("out"));
    let order = Tokenize {
        inputs: &inputs,
        tokenizer: &tokenizer,
        out: &out,
        append_eos: None,
        text_key: None,
        chat_template: None,
    };
    let mut seen = Vec::new();
    let stopped = tokenize(&order, &mut |done| {
        seen.extend((done.documents > 0).then_some(done));
        done.documents == 0
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert_eq!(seen, [Done { bytes: 4, all_bytes: 4, documents: 1, tokens: seen[0].tokens }]);
    assert_eq!(fs::read(at("out.bin")).unwrap(), b"old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_model_trains_on_what_was_tokenised() {
    let folder = folder();
    let config =
        r#"{"model_type": "gpt2", "n_embd": 16, "n_head": 4, "n_layer": 1, "n_positions": 32, "vocab_size": 340}"#;
    write(folder.path(), "model/config.json", config.as_bytes());
    let lines: String = (0..200).map(|n| format!("{{\"text\": \"{n} tokens of {}\"}}\n", n * n)).collect();
    write(folder.path(), "a.jsonl", lines.as_bytes());
    let output = run(folder.path(), "tokenize a.jsonl --tokenizer . --append-eos 0 --out out");
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("200 documents in 1 file"));
    let train = "train model --seq 16 --global-batch 4 --steps 2 --format json";
    let told = answer(folder.path(), &format!("{train} --data out"));
    assert_eq!((&told["documents"], &told["unit"]), (&200.into(), &"tokens".into()));

    // Records tell before any token is read which tokens there are, and whose.
    let small = config.replace("340", "300");
    write(folder.path(), "small/config.json", small.as_bytes());
    let other = include_str!("../tokenize/tokenizer.json").replace("\"version\"", " \"version\"");
    write(folder.path(), "other.json", other.as_bytes());
    assert!(run(folder.path(), "tokenize a.jsonl --tokenizer other.json --out more").status.success());
    let record = fs::read_to_string(folder.path().join("more.json")).unwrap();
    fs::copy(folder.path().join("out.bin"), folder.path().join("wrong.bin")).unwrap();
    fs::copy(folder.path().join("out.idx"), folder.path().join("wrong.idx")).unwrap();
    write(folder.path(), "wrong.json", record.as_bytes());
    let refused = |args: &str| String::from_utf8(run(folder.path(), args).stderr).unwrap();
    for (args, code, said) in [
        (train.replace("model", "small") + " --data out", "MW0712", "out.bin has ids up to 3"),
        (format!("{train} --blend out:1,more:1"), "MW0805", "but more.bin those of another tokenizer, other.json"),
        (format!("{train} --data out --valid more"), "MW0805", "another tokenizer, other.json"),
        (format!("{train} --data wrong"), "MW0711", "wrong.json counts"),
    ] {
        let stderr = refused(&args);
        assert!(stderr.contains(&format!("error[{code}]")) && stderr.contains(said), "{args}: {stderr}");
    }
}
