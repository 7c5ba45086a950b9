//! The parts of the search against trying everything, on small random nets.

use super::Assignment;
use super::clock::Clock;
use super::construct::construct;
use super::domains::Domains;
use super::forest::Forest;
use super::incumbent::Incumbent;
use super::net::Net;
use super::problem::Budget;
use super::random::Random;
use super::shared::Best;

/// A problem of some nodes with up to three choices each, and a limit.
fn small(seed: u64, nodes: usize, forbidden: f64, limit: u64) -> Assignment {
    let mut random = Random::new(seed);
    let mut problem = Assignment::new();
    let all: Vec<_> = (0..nodes)
        .map(|_| {
            let choices = 1 + random.below(3);
            problem.node((0..choices).map(|_| random.below(20) as f64).collect())
        })
        .collect();
    for (place, &b) in all.iter().enumerate().skip(1) {
        for &a in &all[..place] {
            if random.unit() < 2.5 / nodes as f64 {
                let pairs = problem.choices(a) * problem.choices(b);
                let mut cost = || if random.unit() < forbidden { f64::INFINITY } else { random.below(20) as f64 };
                problem.edge(a, b, (0..pairs).map(|_| cost()).collect());
            }
        }
    }
    for &node in &all {
        for _ in 0..random.below(3) {
            let from = random.below(10) as u32;
            let until = from + 1 + random.below(6) as u32;
            let amounts = (0..problem.choices(node)).map(|_| random.below(10) as u64).collect();
            problem.load(node, from..until, amounts);
        }
    }
    problem.limit(limit);
    problem
}

/// All choices of some nodes, with the others' from `choice`.
fn all_choices(net: &Net, nodes: &[usize], choice: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![choice.to_vec()];
    for &node in nodes {
        let each = |choice: Vec<usize>| {
            (0..net.choices(node)).map(move |i| {
                let mut choice = choice.clone();
                choice[node] = i;
                choice
            })
        };
        all = all.into_iter().flat_map(each).collect();
    }
    all
}

fn endless() -> Clock {
    Clock::new(&Budget { work: Some(10_000_000), ..Budget::default() })
}

#[test]
fn a_forest_takes_its_best_choices() {
    let mut members = 0;
    for seed in 0..100 {
        let net = Net::new(&small(seed, 9, 0.0, 1000));
        let mut random = Random::new(seed);
        let nodes: Vec<usize> = net.nodes().collect();
        let first: Vec<usize> = nodes.iter().map(|&node| random.below(net.choices(node))).collect();
        let forest = Forest::grow(&net, &nodes, &mut random);
        let inside = forest.nodes();
        members += inside.len();
        let mut choice = first.clone();
        forest.choose(&net, &net.cost, &mut choice);
        let least =
            all_choices(&net, &inside, &first).iter().map(|choice| net.cost_of(choice)).fold(f64::INFINITY, f64::min);
        assert_eq!(net.cost_of(&choice), least, "seed {seed}");
        assert!(nodes.iter().all(|node| inside.contains(node) || choice[*node] == first[*node]), "seed {seed}");
    }
    assert!(members > 500, "forests of {members} nodes together");
}

#[test]
fn a_first_assignment_is_found_whenever_there_is_one() {
    let (mut found, mut none) = (0, 0);
    for seed in 0..300 {
        let net = Net::new(&small(seed, 7, 0.4, 25));
        let nodes: Vec<usize> = net.nodes().collect();
        let is_allowed = |choice: &Vec<usize>| net.cost_of(choice).is_finite() && net.fits(choice);
        let exists = all_choices(&net, &nodes, &[0; 7]).iter().any(is_allowed);
        match construct(&net, &mut endless()) {
            Ok(Some(choice)) => assert!(is_allowed(&choice), "seed {seed}"),
            Ok(None) => panic!("seed {seed}: out of steps"),
            Err(_) => assert!(!exists, "seed {seed}"),
        }
        found += usize::from(exists);
        none += usize::from(!exists);
    }
    assert!(found > 50 && none > 50, "{found} have an assignment, {none} none");
}

#[test]
fn what_was_closed_opens_again() {
    let mut closed = 0;
    for seed in 0..100 {
        let net = Net::new(&small(seed, 8, 0.3, 40));
        let (Ok(mut domains), Ok(first)) = (Domains::new(&net), Domains::new(&net)) else { continue };
        let mark = domains.mark();
        let mut random = Random::new(seed);
        for _ in 0..5 {
            let node = random.below(8);
            let choice = domains.first(node);
            if domains.assign(node, choice).is_err() {
                break;
            }
        }
        closed += domains.mark() - mark;
        domains.undo(mark);
        assert!(domains.is_like(&first), "seed {seed}");
    }
    assert!(closed > 100, "{closed} choices were closed");
}

/// A part costs what the net does, and is within its limit whenever the net is.
#[test]
fn a_part_is_the_net_around_it() {
    let mut compared = 0;
    for seed in 0..200 {
        let net = Net::new(&small(seed, 9, 0.1, 30));
        let Ok(Some(choice)) = construct(&net, &mut endless()) else { continue };
        let nodes = [1, 4, 5, 8];
        let cost = net.cost_of(&choice);
        let part = Incumbent::new(&net, Best { choice: choice.clone(), cost }).part(&nodes);
        for whole in all_choices(&net, &nodes, &choice) {
            let own: Vec<usize> = nodes.iter().map(|&node| whole[node]).collect();
            assert_eq!(part.fits(&own), net.fits(&whole), "seed {seed}");
            assert_eq!(part.cost_of(&own), net.cost_of(&whole), "seed {seed}");
            compared += 1;
        }
    }
    assert!(compared > 1000, "{compared} assignments were compared");
}
