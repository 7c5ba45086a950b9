//! Two processes that meet while a stranger says random things at their port: they train as if nobody else were there.

use crate::cases::{Cases, Failure};
use crate::models;
use crate::process::{Folder, start_rank};
use crate::random::Random;
use crate::seeds::{TEXT, text, words};
use crate::spoil::spoil;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const CASES: u64 = 6;

const TRAIN: &str =
    "train ../config.json --data ../text.txt --seq 8 --global-batch 2 --steps 2 --parallel dp=2 --comm tcp --out ../a";

/// Words of somebody who knows the form of a meeting and not its secret; each number of a nonce and a proof is a zero.
const HELLO: &str = r#"{"text":"{\"protocol\":2,\"run\":\"\",\"number\":1,\"count\":2,\"host\":\"x\",\"port\":1,\"nonce\":ZEROS,\"has_secret\":true,\"failure\":null}","proof":ZEROS}"#;

#[test]
fn strangers() {
    Cases::asked(CASES).run("strangers", 1, |case| {
        let mut random = Random::new(case);
        let folder = Folder::new(&format!("fuzz-strangers-{case}"));
        fs::write(folder.path().join("config.json"), models::all()[1].to_string()).unwrap();
        fs::write(folder.path().join(TEXT), text()).unwrap();
        let port = tcp::free_port().unwrap();
        let is_over = AtomicBool::new(false);
        let late = Duration::from_millis(random.below(400) as u64);
        let (ended, said) = thread::scope(|scope| {
            let stranger = scope.spawn(|| disturb(&mut random, port, &is_over));
            let begin =
                |number| start_rank(folder.path(), number, &words(TRAIN), port, Some("what both processes know"));
            let first = begin(0);
            thread::sleep(late);
            let ended = [first, begin(1)].map(|process| process.end());
            is_over.store(true, Ordering::Relaxed);
            (ended, stranger.join().unwrap())
        });
        for (number, ended) in ended.iter().enumerate() {
            let ends_well = ended.judged().and_then(|()| match ended.code() {
                Some(0) => Ok(()),
                code => Err(format!("{code:?}\n{}", ended.stderr)),
            });
            if let Err(why) = ends_well {
                let why = format!("process {number} beside {said} connections: {why}");
                return Err(Failure { why, folder: Some(folder.keep()) });
            }
        }
        Ok(if said > 0 { "met beside a stranger" } else { "met alone" }.to_string())
    });
}

/// Connects again and again until all is over, and says random things. Returns how often somebody listened.
fn disturb(random: &mut Random, port: u16, is_over: &AtomicBool) -> u64 {
    let (mut kept, mut count) = (Vec::new(), 0);
    let zeros = format!("[{}]", vec!["0"; 32].join(","));
    let hello = HELLO.replace("ZEROS", &zeros);
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            count += 1;
            let words = match random.below(4) {
                0 => hello.clone().into_bytes(),
                1 => spoil(random, hello.as_bytes(), &[]),
                _ => (0..random.below(200)).map(|_| random.below(256) as u8).collect(),
            };
            let length = if random.chance(80) { words.len() as u32 } else { random.below(1 << 31) as u32 };
            // Who is turned away cannot say more.
            let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
            let _ = stream.read(&mut [0; 256]);
            let _ = stream.write_all(&length.to_le_bytes()).and_then(|()| stream.write_all(&words));
            kept.push(stream);
            if random.chance(60) {
                kept.remove(0);
            }
        }
        thread::sleep(Duration::from_millis(random.below(5) as u64));
    }
    count
}
