//! Tests of wires whose ends are all in this process.

mod strangers;

use super::*;
use std::thread;

type Opened = Result<(World, Box<dyn Wire>), String>;

fn members(count: usize) -> Vec<Member> {
    let port = free_port().unwrap();
    let secret = Secret::of("what only members know", "a test").ok();
    let member = |number| Member {
        number,
        count,
        host: "127.0.0.1".to_string(),
        port,
        run: "test".to_string(),
        secret: secret.clone(),
    };
    (0..count).map(member).collect()
}

/// Opens the wires of processes, each on a thread: of two hosts, one after the other.
fn opened(members: &[Member], patience: Duration) -> Vec<Opened> {
    thread::scope(|scope| {
        let open = |member: &Member| {
            let member = member.clone();
            let host = format!("host{}", member.number % 2);
            scope.spawn(move || open_as(&member, member.count, &host, patience, &mut |_| ()))
        };
        let all: Vec<_> = members.iter().map(open).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn met(count: usize) -> Vec<(World, Box<dyn Wire>)> {
    opened(&members(count), WELL).into_iter().map(Result::unwrap).collect()
}

/// The failure of a process, and the notices before it.
fn failure(wire: &mut dyn Wire) -> (Vec<Vec<u8>>, WireError) {
    let mut notices = Vec::new();
    loop {
        match wire.hear() {
            Ok(Some((_, notice))) => notices.push(notice),
            Ok(None) => sleep(Duration::from_millis(1)),
            Err(why) => return (notices, why),
        }
    }
}

const SIZES: [usize; 7] = [0, 1, 100, 16_368, 16_384, 70_000, (3 << 20) + 5];
const TAGS: u32 = 3;

/// The message of a number from one process to another, with a tag.
fn message(from: usize, to: usize, tag: u32, number: usize) -> Vec<u8> {
    let size = SIZES[(number + tag as usize) % SIZES.len()];
    (0..size).map(|at| (at * 7 + from * 31 + to * 17 + tag as usize * 5 + number) as u8).collect()
}

/// Sends all messages to all others and takes theirs, some awaited before they come and some after.
fn exchange(world: &World, wire: &mut dyn Wire) {
    let (me, count) = (world.me, world.processes.len());
    let others: Vec<usize> = (0..count).filter(|other| *other != me).collect();
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut want: Vec<Option<Vec<u8>>> = Vec::new();
    let mut left = 0;
    let mut finished = Vec::new();
    for round in 0..2 {
        for &other in &others {
            for tag in 1..=TAGS {
                for number in 0..SIZES.len() {
                    // Of half the tags places wait for messages, of the others messages for places.
                    let is_send = (round == 0) == (tag % 2 == 0);
                    let ticket = kept.len();
                    let (bytes, wanted) = match is_send {
                        true => (message(me, other, tag, number), None),
                        false => (vec![0; SIZES[6]], Some(message(other, me, tag, number))),
                    };
                    kept.push(bytes);
                    want.push(wanted);
                    left += 1;
                    let bytes = kept[ticket].as_mut_slice();
                    // SAFETY: the bytes are kept until all tickets have come back, and a list that grows moves only their owners.
                    unsafe {
                        match is_send {
                            true => wire.send(ticket, other, tag, bytes).unwrap(),
                            false => wire.receive(ticket, other, tag, bytes).unwrap(),
                        }
                    }
                }
            }
            wire.notify(other, &[me as u8, round]).unwrap();
        }
        for _ in 0..20 {
            wire.poll(&mut finished).unwrap();
            sleep(Duration::from_millis(1));
        }
    }
    let mut notices = Vec::new();
    while left > finished.len() || notices.len() < 2 * others.len() {
        wire.poll(&mut finished).unwrap();
        notices.extend(wire.hear().unwrap());
    }
    notices.sort();
    let expected = others.iter().flat_map(|&other| [(other, vec![other as u8, 0]), (other, vec![other as u8, 1])]);
    assert_eq!(notices, expected.collect::<Vec<_>>());
    for Finished { ticket, bytes } in finished {
        match &want[ticket] {
            Some(want) => assert!(kept[ticket][..bytes] == want[..], "a message of {bytes} bytes"),
            None => assert_eq!(bytes, kept[ticket].len()),
        }
    }
}

#[test]
fn messages_arrive_whole_and_in_order_whoever_waits() {
    thread::scope(|scope| {
        for (world, mut wire) in met(3) {
            scope.spawn(move || {
                exchange(&world, wire.as_mut());
                exchange(&world, wire.as_mut());
                let began = Instant::now();
                wire.end(true);
                assert!(began.elapsed() < WELL, "process {} waits in vain", world.me);
            });
        }
    });
}

#[test]
fn processes_of_a_host_have_neighbouring_ranks() {
    for (number, (world, _wire)) in met(4).into_iter().enumerate() {
        let hosts: Vec<_> = world.processes.iter().map(|process| (process.host.as_str(), process.ranks[0])).collect();
        assert_eq!(hosts, [("host0", 0), ("host0", 1), ("host1", 2), ("host1", 3)]);
        assert_eq!(world.me, [0, 2, 1, 3][number]);
    }
}

#[test]
fn a_process_that_is_gone_is_named_and_its_last_words_come_first() {
    let mut met = met(3);
    let (_, mut failed) = met.remove(2);
    drop(met.remove(1));
    let (_, mut first) = met.remove(0);
    let (none, gone) = failure(first.as_mut());
    assert_eq!((none.len(), gone.process), (0, Some(2)));
    assert_eq!(gone.why, "process 2 on host1 is gone: its connection was closed");
    failed.notify(0, b"out of paper").unwrap();
    failed.end(false);
    let (words, _) = failure(first.as_mut());
    assert_eq!(words, [b"out of paper"]);
}

#[test]
fn an_agreed_end_is_no_failure() {
    let mut met = met(2);
    let (_, second) = met.remove(1);
    let (_, mut first) = met.remove(0);
    let ending = thread::spawn(|| second.end(true));
    for _ in 0..100 {
        assert_eq!(first.hear(), Ok(None));
        sleep(Duration::from_millis(1));
    }
    first.end(true);
    ending.join().unwrap();
}

#[test]
fn a_message_longer_than_its_place_is_refused() {
    let mut met = met(2);
    let (mut place, bytes) = ([0; 3], [1; 4]);
    let mut finished = Vec::new();
    // SAFETY: the bytes live until the wires are dropped, at the end of this function.
    unsafe {
        met[0].1.receive(0, 1, 9, &mut place).unwrap();
        met[1].1.send(0, 0, 9, &bytes).unwrap();
    }
    met[1].1.poll(&mut finished).unwrap();
    let (_, why) = failure(met[0].1.as_mut());
    assert!(why.why.contains("it sends 4 bytes where 3 are awaited"), "{why}");
    drop(met);
}
