//! Charts, as inline SVG in a `<figure>`. They are drawn in the fixed colours of [`ink`]; the
//! page's style sheet selects these attribute values and replaces them by the theme's colours.

use maud::{Markup, PreEscaped, html};
use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{BoldPoints, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::number;

/// Colours of charts. `style.css` selects elements by these values, spelled the same way.
pub mod ink {
    use plotters::style::RGBColor;

    /// Colour of titles, labels and ticks.
    pub const TEXT: RGBColor = RGBColor(0x59, 0x63, 0x6E);
    /// Colour of axes and grid lines.
    pub const GRID: RGBColor = RGBColor(0xD8, 0xDE, 0xE4);
    /// Colours of the series, used cyclically. The style sheet also gives each its own dash pattern,
    /// for readers who cannot distinguish the colours.
    pub const SERIES: [RGBColor; 6] = [
        RGBColor(0x0B, 0x6B, 0xB8),
        RGBColor(0xC2, 0x50, 0x0A),
        RGBColor(0x0A, 0x7D, 0x5A),
        RGBColor(0x9A, 0x4F, 0x9E),
        RGBColor(0x8A, 0x6D, 0x00),
        RGBColor(0x57, 0x60, 0x6A),
    ];
}

/// Title and axis labels of a chart.
#[derive(Debug, Clone, Copy)]
pub struct ChartLabels<'a> {
    /// Title of the chart, above it.
    pub title: &'a str,
    /// Label of the horizontal axis.
    pub x: &'a str,
    /// Label of the vertical axis, next to the title.
    pub y: &'a str,
}

/// Number format of the vertical axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisUnit {
    /// A plain number.
    Number,
    /// A share, shown in per cent.
    Share,
}

/// A named line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name of the line in the legend.
    pub name: String,
    /// Steps and values, by ascending step. Values that are not finite are not drawn.
    pub points: Vec<(u64, f64)>,
}

/// One point of a [`reliability`] chart.
#[derive(Debug, Clone, PartialEq)]
pub struct ReliabilityBucket {
    /// Label of the bucket on the horizontal axis.
    pub name: String,
    /// Number of sentences in the bucket.
    pub count: usize,
    /// Share of the bucket and its 95 % interval, 0 to 1; `None` if the bucket is empty.
    pub share: Option<(f64, (f64, f64))>,
}

/// SVG units per pixel of the page. plotters has integer coordinates, so charts are drawn larger.
pub(crate) const FINE: u32 = 4;
const SIZE: (u32, u32) = (380 * FINE, 220 * FINE);
pub(crate) const FONT: u32 = 11 * FINE;
/// Factor by which plotters draws letters smaller than the requested size.
const SHRINKS: f64 = 1.24;
/// Largest number of labels on an axis.
pub(crate) const TICKS: usize = 6;
/// Largest number of decimals of a tick; doubles have no more digits.
const MAX_DECIMALS: usize = 16;
/// Largest number of points of a line; more cannot be distinguished.
const POINTS: usize = 400;
/// Largest value that is drawn; plotters' arithmetic of ticks overflows beyond it.
pub(crate) const LARGEST: f64 = 1e30;

/// Draws lines over steps, with a legend of their last values. A line without points uses a colour,
/// but has no legend entry.
#[must_use]
pub fn lines(labels: ChartLabels<'_>, unit: AxisUnit, series: &[Series]) -> Markup {
    let shown: Vec<Series> = series.iter().map(Series::drawable).collect();
    let points: Vec<(u64, f64)> = shown.iter().flat_map(|line| line.points.clone()).collect();
    let Some(steps) = bounds(points.iter().map(|point| point.0)) else {
        return nothing_to_draw(labels);
    };
    let value_bounds = bounds(points.iter().map(|point| point.1)).expect("as many values as steps");
    let values = widened(value_bounds, unit);
    let legend = html! {
        @for (n, line) in series.iter().enumerate() {
            @if let Some(last) = line.last() {
                li { (swatch(n)) (line.name) " " b { (written(last, unit)) } }
            }
        }
    };
    let svg = drawn(|area| draw_lines(area, labels.x, unit, &shown, steps, values));
    figure(labels, Some(legend), &svg)
}

/// Draws shares with 95 % intervals over named buckets.
#[must_use]
pub fn reliability(labels: ChartLabels<'_>, buckets: &[ReliabilityBucket]) -> Markup {
    if buckets.is_empty() {
        return nothing_to_draw(labels);
    }
    figure(labels, None, &drawn(|area| draw_buckets(area, labels.x, buckets)))
}

pub(crate) fn figure(labels: ChartLabels<'_>, legend: Option<Markup>, svg: &str) -> Markup {
    html! {
        figure.chart {
            figcaption { b { (labels.title) } span.unit { (labels.y) } }
            div role="img" aria-label={ (labels.title) ", " (labels.y) } { (PreEscaped(svg)) }
            @if let Some(legend) = legend { ul.legend { (legend) } }
        }
    }
}

pub(crate) fn nothing_to_draw(labels: ChartLabels<'_>) -> Markup {
    html! {
        figure.chart {
            figcaption { b { (labels.title) } span.unit { (labels.y) } }
            p.empty { "nothing recorded" }
        }
    }
}

/// Draws a legend's sample of a series' line.
pub(crate) fn swatch(series: usize) -> Markup {
    let RGBColor(r, g, b) = ink::SERIES[series % ink::SERIES.len()];
    html! {
        svg.swatch viewBox="0 0 88 16" aria-hidden="true" {
            polyline
                fill="none"
                stroke=(format!("#{r:02X}{g:02X}{b:02X}"))
                stroke-width=(2 * FINE)
                points="0,8 88,8" {}
        }
    }
}

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

pub(crate) fn drawn(draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    draw(&area).and_then(|()| area.present()).expect("a String takes everything");
    drop(area);
    svg
}

fn draw_lines(
    area: &Area<'_>,
    x: &str,
    unit: AxisUnit,
    series: &[Series],
    steps: (u64, u64),
    values: (f64, f64),
) -> Drawn {
    let ticks = RangedCoordf64::from(values.0..values.1).key_points(BoldPoints(TICKS));
    let decimals = decimals(&ticks, unit);
    let label = |value: &f64| tick(*value, decimals, unit);
    let mut chart = frame(area, 34, room_for(ticks.iter().map(label)))
        .build_cartesian_2d(steps.0..steps.1.max(steps.0 + 1), values.0..values.1)?;
    styled(&mut chart.configure_mesh())
        .x_labels(TICKS)
        .y_labels(TICKS)
        .y_label_formatter(&label)
        .x_desc(x)
        .draw()?;
    for (n, line) in series.iter().enumerate() {
        let colour = ink::SERIES[n % ink::SERIES.len()];
        match line.points.as_slice() {
            [] => {}
            [alone] => drop(chart.draw_series([Circle::new(*alone, 3 * FINE, colour.filled())])?),
            points => drop(chart.draw_series(LineSeries::new(
                points.iter().copied(),
                colour.stroke_width(2 * FINE),
            ))?),
        }
    }
    Ok(())
}

fn draw_buckets(area: &Area<'_>, x: &str, buckets: &[ReliabilityBucket]) -> Drawn {
    let last = buckets.len() as i64;
    let name = |at: &i64| {
        let bucket = usize::try_from(*at).ok().and_then(|at| buckets.get(at));
        bucket.map_or(String::new(), |bucket| bucket.name.clone())
    };
    let mut chart = frame(area, 48, 42).build_cartesian_2d(-1..last, 0.0..1.0)?;
    styled(&mut chart.configure_mesh())
        .x_labels(buckets.len() + 2)
        .x_label_formatter(&name)
        .y_labels(TICKS)
        .y_label_formatter(&|value| tick(*value, 0, AxisUnit::Share))
        .x_desc(x)
        .draw()?;
    let line = ink::SERIES[0].stroke_width(2 * FINE);
    for (at, bucket) in (0..).zip(buckets) {
        let (across, down) = chart.backend_coord(&(at, 0.0));
        let centred =
            text().with_anchor::<RGBColor>(Pos::new(HPos::Center, VPos::Top)).into_text_style(area);
        area.draw_text(
            &format!("n = {}", bucket.count),
            &centred,
            (across, down + 20 * FINE as i32),
        )?;
        let Some((share, (low, high))) = bucket.share else { continue };
        chart.draw_series([PathElement::new(vec![(at, low), (at, high)], line)])?;
        chart.draw_series([Circle::new((at, share), 4 * FINE, ink::SERIES[0].filled())])?;
    }
    Ok(())
}

/// Returns a chart builder with margins for the labels below and left of the axes, in pixels of the
/// page.
pub(crate) fn frame<'a, 'b>(
    area: &'a Area<'b>,
    below: u32,
    left: u32,
) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut frame = ChartBuilder::on(area);
    frame
        .margin_top(7 * FINE)
        .margin_right(13 * FINE)
        .x_label_area_size(below * FINE)
        .y_label_area_size(left * FINE);
    frame
}

/// Estimates the width of the widest label, in pixels of the page.
pub(crate) fn room_for(labels: impl Iterator<Item = String>) -> u32 {
    labels.map(|label| label.chars().count() as u32).max().unwrap_or(0) * 65 / 10 + 10
}

/// Applies the style of axes and grid that all charts have.
pub(crate) fn styled<'m, 'a, 'b, 'c, X: Ranged, Y: Ranged>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, SVGBackend<'c>>,
) -> &'m mut MeshStyle<'a, 'b, X, Y, SVGBackend<'c>> {
    mesh.disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(ink::GRID.stroke_width(FINE))
        .axis_style(ink::GRID.stroke_width(FINE))
        .set_all_tick_mark_size(3 * FINE)
        .label_style(text())
}

pub(crate) fn text() -> TextStyle<'static> {
    TextStyle::from(("sans-serif", f64::from(FONT) * SHRINKS)).color(&ink::TEXT)
}

impl Series {
    fn last(&self) -> Option<f64> {
        self.points.iter().map(|(_, value)| *value).rfind(|value| value.is_finite())
    }

    /// Returns the finite points; if there are more than [`POINTS`], the means of neighbours.
    fn drawable(&self) -> Self {
        let finite = self.points.iter().filter(|(_, value)| value.is_finite());
        let points: Vec<_> =
            finite.map(|&(step, value)| (step, value.clamp(-LARGEST, LARGEST))).collect();
        let mean = |chunk: &[(u64, f64)]| {
            let (step, _) = chunk[chunk.len() / 2];
            (step, chunk.iter().map(|(_, value)| value / chunk.len() as f64).sum())
        };
        let points = points.chunks(points.len().div_ceil(POINTS).max(1)).map(mean).collect();
        Self { name: self.name.clone(), points }
    }
}

pub(crate) fn bounds<T: PartialOrd + Copy>(values: impl Iterator<Item = T>) -> Option<(T, T)> {
    values.fold(None, |bounds, value| match bounds {
        None => Some((value, value)),
        Some((low, high)) => {
            Some((if value < low { value } else { low }, if value > high { value } else { high }))
        }
    })
}

/// Adds a margin to a range of values; a range of shares stays within 0 and 1.
pub(crate) fn widened((low, high): (f64, f64), unit: AxisUnit) -> (f64, f64) {
    let size = low.abs().max(high.abs()).max(1e-9);
    let room = if high - low > 1e-6 * size { 0.06 * (high - low) } else { 0.1 * size };
    match unit {
        AxisUnit::Number if low >= 0.0 => ((low - room).max(0.0), high + room),
        AxisUnit::Number => (low - room, high + room),
        AxisUnit::Share => ((low - room).max(0.0), (high + room).min(1.0).max(low + 0.01)),
    }
}

/// Returns the smallest number of decimals that shows all ticks exactly, at most [`MAX_DECIMALS`].
/// A rounding error is one relative to the distance of the ticks: those of a learning rate are
/// below 1e-6.
pub(crate) fn decimals(ticks: &[f64], unit: AxisUnit) -> usize {
    let factor = if unit == AxisUnit::Share { 100.0 } else { 1.0 };
    let distance = ticks.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(1.0, f64::min);
    let is_exact = |value: &f64, decimals: i32| {
        let scaled = value * factor * 10f64.powi(decimals);
        let error = (scaled - scaled.round()).abs();
        error < 1e-3 * distance * factor * 10f64.powi(decimals)
    };
    (0..MAX_DECIMALS)
        .find(|&decimals| ticks.iter().all(|value| is_exact(value, decimals as i32)))
        .unwrap_or(MAX_DECIMALS)
}

pub(crate) fn tick(value: f64, decimals: usize, unit: AxisUnit) -> String {
    match unit {
        AxisUnit::Share => number::signed(format!("{:.decimals$} %", 100.0 * value)),
        AxisUnit::Number if value != 0.0 && (decimals > 4 || value.abs() >= 1e6) => {
            number::signed(power_of_ten(value, decimals))
        }
        AxisUnit::Number if value == 0.0 => "0".to_owned(),
        AxisUnit::Number => number::signed(format!("{value:.decimals$}")),
    }
}

/// Formats a number as `2.5e-7`, with as many digits as `decimals` of it show.
fn power_of_ten(value: f64, decimals: usize) -> String {
    let exponent = value.abs().log10().floor() as i32;
    let digits = (decimals as i32 + exponent).clamp(0, MAX_DECIMALS as i32) as usize;
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, power)) if mantissa.contains('.') => {
            format!("{}e{power}", mantissa.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

pub(crate) fn written(value: f64, unit: AxisUnit) -> String {
    match unit {
        AxisUnit::Share => number::percent(value),
        AxisUnit::Number => number::short(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: ChartLabels<'_> =
        ChartLabels { title: "reward <b>", x: "step", y: "mean of a completion" };

    fn series(name: &str, values: &[f64]) -> Series {
        Series { name: name.into(), points: (1..).zip(values.iter().copied()).collect() }
    }

    fn lines_of(chart: &Markup) -> usize {
        // The grid and the axes are drawn in another colour.
        let is_series = |line: &&str| {
            ink::SERIES.iter().any(|RGBColor(r, g, b)| {
                line.contains(&format!("stroke=\"#{r:02X}{g:02X}{b:02X}\""))
            })
        };
        let svg = chart.0.split("<ul").next().unwrap();
        svg.lines().filter(|line| line.starts_with("<polyline")).filter(is_series).count()
    }

    #[test]
    fn chart_draws_series_with_last_value_in_legend() {
        let chart = lines(
            LABELS,
            AxisUnit::Number,
            &[series("a", &[0.5, 1.25]), series("b", &[2.0, 1.0, -0.125])],
        );
        assert_eq!(lines_of(&chart), 2, "{}", chart.0);
        assert!(
            chart.0.contains("<b>1.25</b>") && chart.0.contains("<b>−0.125</b>"),
            "{}",
            chart.0
        );
        assert!(chart.0.contains("reward &lt;b&gt;") && !chart.0.contains("reward <b>"));
    }

    #[test]
    fn single_step_and_empty_charts_are_drawn() {
        assert!(lines(LABELS, AxisUnit::Number, &[series("a", &[0.5])]).0.contains("<circle"));
        for empty in [&[][..], &[series("a", &[])], &[series("a", &[f64::NAN])]] {
            assert!(lines(LABELS, AxisUnit::Number, empty).0.contains("nothing recorded"));
        }
    }

    #[test]
    fn long_series_is_drawn_as_means() {
        let many = Series {
            name: "a".into(),
            points: (1..=10_000).map(|step| (step, (step % 2) as f64)).collect(),
        };
        let drawn = many.drawable();
        assert!(
            drawn.points.len() == POINTS
                && drawn.points.iter().all(|(_, value)| (value - 0.5).abs() < 0.03)
        );
        assert_eq!(many.last(), Some(0.0));
    }

    #[test]
    fn any_finite_values_can_be_drawn() {
        for values in [
            [0.0, 0.0],
            [1e300, -1e300],
            [1e-300, 2e-300],
            [5.0, 5.0],
            [1.0, 1.0 + 1e-15],
            [f64::INFINITY, 1.0],
        ] {
            for unit in [AxisUnit::Number, AxisUnit::Share] {
                let chart = lines(LABELS, unit, &[series("a", &values)]);
                assert!(chart.0.contains("<svg") && !chart.0.contains("NaN"), "{values:?}");
            }
        }
    }

    #[test]
    fn ticks_have_as_many_decimals_as_they_need() {
        assert_eq!(decimals(&[0.0, 0.5, 1.0], AxisUnit::Number), 1);
        assert_eq!(decimals(&[-1.0, 3.0], AxisUnit::Number), 0);
        assert_eq!(decimals(&[0.0, 0.25], AxisUnit::Share), 0);
        assert_eq!(tick(-0.25, 2, AxisUnit::Number), "−0.25");
        for (ticks, expected) in [
            (vec![0.0, 2e-7, 4e-7, 6e-7], ["0", "2e-7", "4e-7", "6e-7"]),
            (vec![1e-6, 1.5e-6, 2e-6, 2.5e-6], ["1e-6", "1.5e-6", "2e-6", "2.5e-6"]),
            (vec![0.0, 5e-13, 1e-12, 1.5e-12], ["0", "5e-13", "1e-12", "1.5e-12"]),
            (vec![0.0, 5e5, 1e6, 1.5e6], ["0", "500000", "1e6", "1.5e6"]),
            (vec![-0.1, 0.0, 0.1, 0.2], ["−0.1", "0", "0.1", "0.2"]),
        ] {
            let decimals = decimals(&ticks, AxisUnit::Number);
            let shown: Vec<String> =
                ticks.iter().map(|value| tick(*value, decimals, AxisUnit::Number)).collect();
            assert_eq!(shown, expected);
        }
        assert_eq!(tick(0.5, 0, AxisUnit::Share), "50 %");
    }

    #[test]
    fn bucket_is_drawn_as_point_with_interval() {
        let bucket = |name: &str, share| ReliabilityBucket { name: name.into(), count: 7, share };
        let chart =
            reliability(LABELS, &[bucket("0", Some((0.2, (0.1, 0.4)))), bucket("1–4", None)]);
        assert_eq!((lines_of(&chart), chart.0.matches("<circle").count()), (1, 1), "{}", chart.0);
        assert!(chart.0.contains("1–4") && chart.0.contains("n = 7"), "{}", chart.0);
    }

    #[test]
    fn stylesheet_names_every_chart_colour() {
        let style = include_str!("style.css");
        for RGBColor(r, g, b) in ink::SERIES.into_iter().chain([ink::TEXT, ink::GRID]) {
            let colour = format!("\"#{r:02X}{g:02X}{b:02X}\"");
            assert!(style.contains(&colour), "no {colour}");
        }
    }
}
