//! Files of nanotron.

use super::*;

#[test]
fn files_of_nanotron_are_read_back() {
    let job = job(|parallel| {
        (parallel.dp, parallel.tp, parallel.pp, parallel.sp, parallel.zero) = (8, 4, 2, true, 1);
    });
    let model = "  model_config:\n    is_llama_config: true\n    hidden_size: 64\n    rms_norm_eps: 1.0e-05\n";
    let written = exported(&job, Target::Nanotron).text;
    let read = nanotron_file::read(&(written.clone() + model)).unwrap();
    assert_eq!(read.parallel, "dp=8,tp=4,pp=2,sp=true,schedule=1f1b,ep=1,zero=1,mbs=1");
    assert_eq!((read.seq, read.global_batch, read.precision.as_str()), (Some(8192), Some(128), "bf16"));
    assert_eq!(read.model.as_deref(), Some(r#"{"hidden_size":64,"model_type":"llama","rms_norm_eps":0.00001}"#));
    let slow = written.replace("tp_linear_async_communication: true", "tp_linear_async_communication: false");
    assert!(nanotron_file::read(&slow).unwrap().parallel.contains("tp_overlap=false"));
    let wrong = |from: &str, to: &str| nanotron_file::read(&written.replace(from, to)).unwrap_err().to_string();
    assert_eq!(wrong("tp: 4", "tp: four"), "parallelism.tp is `four`: it takes a whole number");
    assert!(wrong("REDUCE_SCATTER", "SCATTER").contains("ALL_REDUCE or REDUCE_SCATTER"));
    assert!(wrong("parallelism:", "parallel:").contains("no section `parallelism`"));
    assert!(nanotron_file::read("a: [").unwrap_err().to_string().contains("no YAML"));
}
