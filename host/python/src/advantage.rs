//! Returns of a batch → advantages of its tokens.

use corver_core::stats::mean;
use corver_core::{AdvantageSettings, Baseline, ScaleRewards, advantage, baselines};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// Advantages of every token, `[B][T]`, from the returns of a batch (stage 8 of the method).
///
/// The mean of a completion's returns is its reward. A token's advantage is its return, less the
/// mean reward of its group, over the standard deviation of the group's rewards plus 1e-4:
///
///     advantages = corver.advantages([score.returns for score in scores], group_size=16)
///
/// returns: `[B][T]`, one list for each completion, those of a group next to each other.
/// group_size: completions of a group.
/// signs: `[B][T]` of 1, -1 and 0, the `advantage_signs` of the scores. A sign replaces that of its
///     advantage; 0 leaves it. Needed if the rule sets signs.
/// scale_rewards: "group", "batch" (one standard deviation for all) or "none".
/// min_spread: groups with a smaller standard deviation get advantage 0; 0 keeps every group.
///
/// Raises ValueError if the completions do not fill the groups, or the shapes differ.
#[pyfunction]
#[pyo3(signature = (returns, group_size, *, signs=None, scale_rewards="group", min_spread=0.0))]
pub fn advantages(
    returns: Vec<Vec<f64>>,
    group_size: usize,
    signs: Option<Vec<Vec<i8>>>,
    scale_rewards: &str,
    min_spread: f64,
) -> PyResult<Vec<Vec<f64>>> {
    let rewards: Vec<f64> = returns.iter().map(|row| mean(row)).collect();
    let baselines = compute_baselines(&rewards, group_size, scale_rewards, min_spread)?;
    let mut advantages = returns;
    for (index, row) in advantages.iter_mut().enumerate() {
        let baseline = &baselines[index / group_size];
        for value in row {
            *value = baseline.advantage(*value);
        }
    }
    if let Some(signs) = signs {
        apply_signs(&mut advantages, &signs)?;
    }
    Ok(advantages)
}

fn apply_signs(advantages: &mut [Vec<f64>], signs: &[Vec<i8>]) -> PyResult<()> {
    if signs.len() != advantages.len() {
        return Err(PyValueError::new_err(format!(
            "there are {} rows of signs for {} of returns; give one for each",
            signs.len(),
            advantages.len()
        )));
    }
    for (index, (row, row_signs)) in advantages.iter_mut().zip(signs).enumerate() {
        if row_signs.len() != row.len() {
            return Err(PyValueError::new_err(format!(
                "signs[{index}] has {} entries for {} returns; give one for each",
                row_signs.len(),
                row.len()
            )));
        }
        advantage::take_signs(row, row_signs);
    }
    Ok(())
}

/// Baselines of the groups of a batch, from the reward of each completion. For trainers that gather
/// rewards over processes; see `advantages` for the arguments.
#[pyfunction]
#[pyo3(signature = (rewards, group_size, scale_rewards="group", min_spread=0.0))]
pub fn group_baselines<'py>(
    py: Python<'py>,
    rewards: Vec<f64>,
    group_size: usize,
    scale_rewards: &str,
    min_spread: f64,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    static BASELINE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = BASELINE.import(py, "corver._types", "Baseline")?;
    let mut groups = Vec::new();
    for group in compute_baselines(&rewards, group_size, scale_rewards, min_spread)? {
        groups.push(class.call1((group.centre, group.spread, group.scale))?);
    }
    Ok(groups)
}

fn compute_baselines(
    rewards: &[f64],
    group_size: usize,
    scale_rewards: &str,
    min_spread: f64,
) -> PyResult<Vec<Baseline>> {
    let scale_rewards = match scale_rewards {
        "group" => ScaleRewards::Group,
        "batch" => ScaleRewards::Batch,
        "none" => ScaleRewards::None,
        other => {
            return Err(PyValueError::new_err(format!(
                "scale_rewards is {other:?}; it must be \"group\", \"batch\" or \"none\""
            )));
        }
    };
    if group_size == 0 || !rewards.len().is_multiple_of(group_size) {
        return Err(PyValueError::new_err(format!(
            "{} completions do not fill groups of {group_size}",
            rewards.len()
        )));
    }
    Ok(baselines(rewards, group_size, &AdvantageSettings { scale_rewards, min_spread }))
}
