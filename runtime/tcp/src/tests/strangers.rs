//! Meetings to which others come than those who belong there.

use super::{Opened, WELL, members, opened};
use crate::message::{Answer, MOST_OF_ANSWER};
use crate::reception::Reception;
use crate::rendezvous::{decline, hello, reach_first};
use crate::{Member, Secret, open, open_as};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(4);

/// Connects with a port as soon as somebody listens there.
fn knock(port: u16) -> TcpStream {
    let until = Instant::now() + WELL;
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(why) => assert!(Instant::now() < until, "{why}"),
        }
        sleep(Duration::from_millis(1));
    }
}

/// Opens the wires of processes, while somebody else does something; checks that they meet.
fn meet_beside(members: &[Member], other: impl FnOnce(u16) + Send) {
    let port = members[0].port;
    thread::scope(|scope| {
        let other = scope.spawn(move || other(port));
        let began = Instant::now();
        let first = members[0].clone();
        let first = scope.spawn(move || open_as(&first, first.count, "a", WELL, &mut |_| ()).map(drop));
        other.join().unwrap();
        let late = opened(&members[1..], WELL);
        assert!(late.iter().all(Result::is_ok) && first.join().unwrap().is_ok());
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    });
}

fn why(opened: Opened) -> String {
    opened.map(drop).unwrap_err()
}

#[test]
fn who_says_nothing_nonsense_or_too_much_keeps_nobody_waiting() {
    let mut kept = Vec::new();
    meet_beside(&members(3), |port| {
        kept.extend((0..300).map(|_| knock(port)));
        kept[0].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        kept[1].write_all(&u32::MAX.to_le_bytes()).unwrap();
        kept[2].write_all(&[5, 0, 0, 0, b'{']).unwrap();
        kept[3].write_all(&[2, 0, 0, 0, b'{', b'}']).unwrap();
        kept[4].write_all(&[0; 4]).unwrap();
    });
    // Who is turned away finds its connection closed.
    let mut closed = kept.swap_remove(3);
    closed.set_read_timeout(Some(SOON)).unwrap();
    assert!(closed.read_to_end(&mut Vec::new()).is_ok());
}

#[test]
fn who_drips_is_heard_beside_the_others() {
    meet_beside(&members(2), |port| {
        let mut slow = knock(port);
        thread::spawn(move || {
            let bytes = [200, 0, 0, 0].into_iter().chain(std::iter::repeat(b' '));
            bytes.map_while(|byte| slow.write_all(&[byte]).ok()).for_each(|()| sleep(Duration::from_millis(100)));
        });
    });
}

#[test]
fn who_lacks_the_secret_ends_no_meeting() {
    let members = members(2);
    let claims = |secret: &str, member: &Member| Member { secret: Secret::of(secret, "a test").ok(), ..member.clone() };
    let strangers = [
        claims("what others believe to know", &members[1]),
        Member { secret: None, ..members[1].clone() },
        Member { secret: None, count: 3, ..members[1].clone() },
        Member { secret: None, number: 7, count: 9, ..members[1].clone() },
        Member { run: "other".to_string(), ..members[1].clone() },
    ];
    let mut told = Vec::new();
    meet_beside(&members, |_| {
        told = strangers.iter().map(|one| why(open_as(one, one.count, "b", WELL, &mut |_| ()))).collect()
    });
    assert_eq!(told[0], "process 0 is lost: it has another secret, or none");
    assert_eq!(told[1], "process 1 on b has another secret than process 0, or one of them has none");
    assert_eq!(told[3], "process 7 on b has another secret than process 0, or one of them has none");
    assert_eq!(told[4], "process 0 is of another run");
}

#[test]
fn who_knows_the_secret_and_does_not_fit_ends_the_meeting() {
    let refused = |members: &[Member], patience| opened(members, patience).into_iter().map(why).collect::<Vec<_>>();
    let [zero, one] = members(2).try_into().unwrap();
    let of_three = Member { count: 3, ..one.clone() };
    let told = "process 1 is one of 3, and process 0 one of 2";
    assert_eq!(refused(&[zero, of_three], WELL), [told, told]);
    let alone = &members(3)[0];
    assert_eq!(refused(std::slice::from_ref(alone), Duration::ZERO), ["processes 1, 2 have not come"]);
    let lost = &refused(&[one], Duration::from_millis(50))[0];
    assert!(lost.starts_with("process 0 does not answer at 127.0.0.1:"), "{lost}");
    let all = members(3);
    let told = thread::scope(|scope| {
        let others: Vec<_> = all.iter().map(|member| scope.spawn(|| why(open(member, 4, WELL, &mut |_| ())))).collect();
        others.into_iter().map(|other| other.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(told.iter().all(|why| why == "3 processes do not divide the 4 devices"), "{told:?}");
    let twice = members(3);
    let told = "there are two processes 1, on host1 and host1";
    let found = refused(&[twice[0].clone(), twice[1].clone(), twice[1].clone()], WELL);
    assert!(found.iter().all(|found| found == told), "{found:?}");
}

#[test]
fn without_a_secret_who_does_not_fit_is_turned_away() {
    let open: Vec<Member> = members(2).into_iter().map(|member| Member { secret: None, ..member }).collect();
    let other = Member { count: 3, ..open[1].clone() };
    let mut told = String::new();
    meet_beside(&open, |_| told = why(open_as(&other, 3, "b", WELL, &mut |_| ())));
    assert_eq!(told, "process 1 is one of 3, and process 0 one of 2");
    let [zero, _] = members(2).try_into().unwrap();
    let zero = Member { secret: None, ..zero };
    let other = Member { count: 3, number: 2, port: zero.port, ..other };
    let found = thread::scope(|scope| {
        let found = scope.spawn(|| why(open_as(&zero, 2, "a", Duration::from_millis(500), &mut |_| ())));
        let _ = open_as(&other, 3, "b", WELL, &mut |_| ());
        found.join().unwrap()
    });
    assert_eq!(found, "processes 1 have not come; turned away: process 2 is one of 3, and process 0 one of 2");
}

#[test]
fn who_does_not_take_part_says_so() {
    let declined = |number: usize| {
        let members = members(3);
        thread::scope(|scope| {
            let took = |member: &Member| {
                let member = member.clone();
                scope.spawn(move || why(open_as(&member, 3, "b", WELL, &mut |_| ())))
            };
            let others: Vec<_> = members.iter().filter(|member| member.number != number).map(took).collect();
            decline(&members[number], "c", "no such file");
            others.into_iter().map(|other| other.join().unwrap()).collect::<Vec<_>>()
        })
    };
    for number in [0, 2] {
        let began = Instant::now();
        let told = format!("process {number} on c has failed before the meeting: no such file");
        assert_eq!(declined(number), [told.clone(), told]);
        assert!(began.elapsed() < SOON);
    }
    let (all, began) = (members(3), Instant::now());
    thread::scope(|scope| all.iter().for_each(|member| drop(scope.spawn(|| decline(member, "c", "no such file")))));
    assert!(began.elapsed() < SOON, "when all decline, none waits: {:?}", began.elapsed());
}

#[test]
fn who_is_gone_before_all_have_come_is_named() {
    let members = members(3);
    let why = thread::scope(|scope| {
        let first = scope.spawn(|| why(open_as(&members[0], 3, "a", WELL, &mut |_| ())));
        let gone = open_as(&members[1], 3, "b", Duration::from_millis(300), &mut |_| ()).map(drop);
        assert!(gone.unwrap_err().starts_with("process 0 is lost: "));
        first.join().unwrap()
    });
    assert_eq!(why, "process 1 on b is gone before all have come");
}

/// Meets process 0 as one of a run, and does nothing more until all others have given up.
fn stop_after_hello(member: &Member) {
    let reception = Reception::open("127.0.0.1:0".parse().unwrap(), member.secret.clone()).unwrap();
    let hello = hello(member, "c", reception.port().unwrap(), None);
    let until = Instant::now() + 4 * WELL;
    let (zero, answer) = reach_first(member, until).unwrap().introduce(member, hello, until).unwrap();
    assert!(answer.unwrap().is_some());
    let answer: Answer = zero.hear(member.secret.as_ref(), MOST_OF_ANSWER, until).unwrap();
    assert!(answer.is_err());
}

#[test]
fn who_is_stopped_in_the_middle_is_named_by_all() {
    let found = |stopped: usize| {
        let members = members(4);
        thread::scope(|scope| {
            scope.spawn(|| stop_after_hello(&members[stopped]));
            let others = [&members[..stopped], &members[stopped + 1..]].concat();
            opened(&others, WELL).into_iter().map(why).collect::<Vec<_>>()
        })
    };
    thread::scope(|scope| {
        let stopped: Vec<_> = [1, 2, 3].map(|number| (number, scope.spawn(move || found(number)))).into();
        for (number, found) in stopped {
            let words = [format!("process {number} is lost: "), format!("processes {number} have not come")];
            let all: Vec<String> = found.join().unwrap();
            let is_named = |why: &String| words.iter().any(|word| why.contains(word));
            assert!(all.iter().all(is_named), "process {number} is stopped: {all:#?}");
        }
    });
}
