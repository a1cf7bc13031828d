//! Scores of a batch → what each group is measured against.

use corver_core::{AdvantageSettings, ScaleRewards, baselines as of};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// What the advantages of each group of completions are measured against (stage 8 of the method).
///
/// The returns of one completion have a mean, its `reward`. A token's advantage is its return, less
/// the mean reward of its group, over the standard deviation of the group's rewards plus 1e-4:
///
///     groups = corver.baselines([score.reward for score in scores], num_generations=16)
///     advantages = [[groups[i // 16].advantage(r) for r in score.returns] for i, score in enumerate(scores)]
///
/// rewards: one for each completion, those of a group next to each other.
/// num_generations: completions of a group.
/// scale_rewards: "group", "batch" (one standard deviation for all) or "none".
/// min_spread: groups whose standard deviation is below get advantage 0; 0 keeps every group.
///
/// Raises ValueError where the rewards are no whole number of groups.
#[pyfunction]
#[pyo3(signature = (rewards, num_generations, scale_rewards="group", min_spread=0.0))]
pub fn baselines<'py>(
    py: Python<'py>,
    rewards: Vec<f64>,
    num_generations: usize,
    scale_rewards: &str,
    min_spread: f64,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    static BASELINE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let scale_rewards = match scale_rewards {
        "group" => ScaleRewards::Group,
        "batch" => ScaleRewards::Batch,
        "none" => ScaleRewards::None,
        other => {
            let told =
                format!("scale_rewards is {other:?}; it is \"group\", \"batch\" or \"none\"");
            return Err(PyValueError::new_err(told));
        }
    };
    if num_generations == 0 || !rewards.len().is_multiple_of(num_generations) {
        let told =
            format!("{} rewards are no whole number of groups of {num_generations}", rewards.len());
        return Err(PyValueError::new_err(told));
    }
    let baseline = BASELINE.import(py, "corver._types", "Baseline")?;
    let groups = of(&rewards, num_generations, &AdvantageSettings { scale_rewards, min_spread });
    groups.iter().map(|group| baseline.call1((group.centre, group.spread, group.scale))).collect()
}
