//! Configurations near another one: each changes one choice, and the choices that must change with it.

use crate::search::keys::{Neighbour, Neighbours, Repair, row};
use compiler::parallel::item;
use ir::config_key::ConfigKey;
use ir::options::ParallelConfig;

/// All neighbours of a configuration, including invalid ones.
pub(super) fn near(best: &ParallelConfig, global_batch: u64) -> Vec<Neighbour> {
    let mut all = Neighbours { best, found: Vec::new() };
    ConfigKey::ALL.into_iter().for_each(|key| (row(key).neighbours)(&mut all));
    let mut near: Vec<Neighbour> = Vec::new();
    for Neighbour { key, more, mut parallel } in all.found {
        ConfigKey::ALL.into_iter().for_each(|key| (row(key).repair)(&mut parallel, &Repair { best, global_batch }));
        let new = Neighbour { key, more, parallel };
        // Dependent changes may have reverted the choice.
        if item(key, best) != item(key, &new.parallel) && !near.contains(&new) {
            near.push(new);
        }
    }
    near
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::parallel::parse_any;

    #[test]
    fn each_is_of_as_many_devices_and_changes_its_own_choice() {
        let best = parse_any("dp=4,tp=4,pp=2,sp=true,zero=1,mbs=2,recompute=full").unwrap();
        let near = near(&best, 64);
        assert!(near.iter().all(|near| near.parallel.devices() == best.devices()));
        for (key, more, is) in [
            (ConfigKey::Tp, false, "dp=8,tp=2"),
            (ConfigKey::Pp, false, "dp=8,pp=1"),
            (ConfigKey::Pp, true, "dp=2,pp=4"),
            (ConfigKey::Zero, false, "zero=0"),
            (ConfigKey::Vp, true, "vp=2"),
            (ConfigKey::Recompute, false, "recompute=none"),
        ] {
            let found = near.iter().filter(|near| near.key == key && near.more == more);
            let texts: Vec<String> = found.map(|near| super::super::differences(&best, &near.parallel)).collect();
            let has = |text: &String| is.split(',').all(|part| text.split(',').any(|item| item == part));
            assert!(texts.iter().any(has), "{key}: {texts:?}");
        }
    }

    #[test]
    fn what_follows_is_made_to_fit() {
        let best = parse_any("dp=2,tp=2,sp=true,zero=1,mbs=4").unwrap();
        let alone = near(&best, 8).into_iter().find(|near| near.key == ConfigKey::Tp && near.parallel.dp == 4).unwrap();
        assert_eq!((alone.parallel.sp, alone.parallel.mbs), (false, 2));
        let one = near(&best, 8).into_iter().find(|near| near.parallel.dp == 1 && near.parallel.pp == 1).unwrap();
        assert_eq!(one.parallel.zero, 0, "{one:?}");
    }
}
