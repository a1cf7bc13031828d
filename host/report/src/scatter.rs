//! Scatter plots of named points with deviations, such as quality over cost.

use maud::{Markup, html};
use plotters::coord::ranged1d::{BoldPoints, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::{
    Area, AxisUnit, ChartLabels, Drawn, FINE, FONT, LARGEST, TICKS, bounds, decimals, drawn,
    figure, frame, ink, nothing_to_draw, room_for, styled, swatch, text, tick, widened, written,
};

/// Largest number of characters of a name next to its point; the legend has the full name.
const LETTERS: usize = 18;

/// A named point with standard deviations.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Index of its colour, as in [`crate::chart::lines`].
    pub series: usize,
    /// Name next to the point and in the legend.
    pub name: String,
    /// Mean and standard deviation on the horizontal axis, 0 or more.
    pub x: (f64, f64),
    /// Mean and standard deviation on the vertical axis.
    pub y: (f64, f64),
}

/// Draws points; the horizontal axis starts at 0.
#[must_use]
pub fn scatter(labels: ChartLabels<'_>, unit: AxisUnit, marks: &[Mark]) -> Markup {
    let marks: Vec<&Mark> = marks.iter().filter(|mark| mark.is_drawable()).collect();
    let ends = |(mean, deviation): (f64, f64)| [mean - deviation, mean + deviation];
    let Some(values) = bounds(marks.iter().flat_map(|mark| ends(mark.y))) else {
        return nothing_to_draw(labels);
    };
    let largest = marks.iter().map(|mark| mark.x.0 + mark.x.1).fold(0.0, f64::max);
    let across = if largest > 0.0 { 1.08 * largest } else { 1.0 };
    let legend = html! {
        @for mark in &marks {
            li {
                (swatch(mark.series)) (mark.name) " "
                b { (written(mark.y.0, unit)) " at " (written(mark.x.0, AxisUnit::Number)) }
            }
        }
    };
    let svg = drawn(|area| draw(area, labels.x, unit, &marks, across, widened(values, unit)));
    figure(labels, Some(legend), &svg)
}

impl Mark {
    fn is_drawable(&self) -> bool {
        [self.x, self.y]
            .iter()
            .all(|(mean, deviation)| mean.abs() < LARGEST && deviation.abs() < LARGEST)
    }
}

fn draw(
    area: &Area<'_>,
    x: &str,
    unit: AxisUnit,
    marks: &[&Mark],
    across: f64,
    values: (f64, f64),
) -> Drawn {
    let key_points =
        |(low, high): (f64, f64)| RangedCoordf64::from(low..high).key_points(BoldPoints(TICKS));
    let y_ticks = key_points(values);
    let x_decimals = decimals(&key_points((0.0, across)), AxisUnit::Number);
    let y_decimals = decimals(&y_ticks, unit);
    let y_label = |value: &f64| tick(*value, y_decimals, unit);
    let mut chart = frame(area, 34, room_for(y_ticks.iter().map(y_label)))
        .build_cartesian_2d(0.0..across, values.0..values.1)?;
    styled(&mut chart.configure_mesh())
        .x_labels(TICKS)
        .x_label_formatter(&|value| tick(*value, x_decimals, AxisUnit::Number))
        .y_labels(TICKS)
        .y_label_formatter(&y_label)
        .x_desc(x)
        .draw()?;
    let points = marks.iter().map(|mark| chart.backend_coord(&(mark.x.0, mark.y.0)));
    let mut names = Names::around(points);
    for mark in marks {
        let (mark_x, x_spread) = mark.x;
        let (mark_y, y_spread) = mark.y;
        let colour = ink::SERIES[mark.series % ink::SERIES.len()];
        let spreads = [
            [(mark_x - x_spread, mark_y), (mark_x + x_spread, mark_y)],
            [(mark_x, mark_y - y_spread), (mark_x, mark_y + y_spread)],
        ];
        for line in spreads.into_iter().filter(|[start, end]| start != end) {
            chart.draw_series([PathElement::new(line.to_vec(), colour.stroke_width(2 * FINE))])?;
        }
        chart.draw_series([Circle::new((mark_x, mark_y), 4 * FINE, colour.filled())])?;
        names.write(
            area,
            &mark.name,
            chart.backend_coord(&(mark_x, mark_y)),
            mark_x > 0.6 * across,
        )?;
    }
    Ok(())
}

/// Areas that points and drawn names cover.
struct Names {
    /// Left end, right end and vertical centre of each area.
    taken: Vec<(i32, i32, i32)>,
}

impl Names {
    fn around(points: impl Iterator<Item = (i32, i32)>) -> Self {
        let radius = 4 * FINE as i32;
        Self { taken: points.map(|(x, y)| (x - radius, x + radius, y)).collect() }
    }

    /// Draws a name next to its point and a little above, moved down until it overlaps nothing.
    fn write(
        &mut self,
        area: &Area<'_>,
        name: &str,
        (x, y): (i32, i32),
        on_the_left: bool,
    ) -> Drawn {
        let [fine, font] = [FINE, FONT].map(|size| size as i32);
        let mut name: String = name.to_owned();
        if name.chars().count() > LETTERS {
            name = name.chars().take(LETTERS - 1).chain(['…']).collect();
        }
        let width = name.chars().count() as i32 * font * 6 / 10;
        let (anchor, start) =
            if on_the_left { (HPos::Right, x - 7 * fine) } else { (HPos::Left, x + 7 * fine) };
        let (left, right) =
            if on_the_left { (start - width, start) } else { (start, start + width) };
        let mut line = y - 9 * fine;
        while self.taken.iter().any(|&(l, r, at)| l < right && left < r && (at - line).abs() < font)
        {
            line += fine;
        }
        self.taken.push((left, right, line));
        let style =
            text().with_anchor::<RGBColor>(Pos::new(anchor, VPos::Center)).into_text_style(area);
        area.draw_text(&name, &style, (start, line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: ChartLabels<'_> = ChartLabels { title: "Accuracy", x: "seconds", y: "share" };

    fn mark(series: usize, name: &str, x: (f64, f64), y: (f64, f64)) -> Mark {
        Mark { series, name: name.into(), x, y }
    }

    #[test]
    fn scatter_draws_arm_with_spread_and_name() {
        let marks =
            [mark(0, "first", (0.02, 0.001), (0.75, 0.01)), mark(2, "<b>", (1.5, 0.1), (0.5, 0.0))];
        let chart = scatter(LABELS, AxisUnit::Share, &marks).0;
        assert_eq!(chart.matches("<circle").count(), 2);
        assert!(
            chart.contains("75.0\u{a0}% at 0.020") && chart.contains("50.0\u{a0}% at 1.50"),
            "{chart}"
        );
        assert!(
            chart.contains("&lt;b&gt;") && !chart.contains("<b>&lt;b") && !chart.contains("><b><"),
            "{chart}"
        );
        let drawn = |n: usize| {
            let RGBColor(r, g, b) = ink::SERIES[n];
            let svg = chart.split("<ul").next().unwrap();
            svg.matches(&format!(
                "<polyline fill=\"none\" opacity=\"1\" stroke=\"#{r:02X}{g:02X}{b:02X}\""
            ))
            .count()
        };
        assert_eq!((drawn(0), drawn(2)), (2, 1), "a spread of 0 has no line: {chart}");
    }

    #[test]
    fn scatter_labels_do_not_overlap() {
        let same = |name| mark(0, name, (1.0, 0.0), (0.5, 0.0));
        let chart = scatter(LABELS, AxisUnit::Share, &[same("one"), same("two"), same("three")]).0;
        let heights: Vec<&str> = ["one", "two", "three"]
            .iter()
            .map(|name| {
                let before = chart.split(&format!("\n{name}\n")).next().unwrap();
                before
                    .rsplit("<text")
                    .next()
                    .unwrap()
                    .split(" y=\"")
                    .nth(1)
                    .unwrap()
                    .split('"')
                    .next()
                    .unwrap()
            })
            .collect();
        assert!(heights[0] != heights[1] && heights[1] != heights[2], "{heights:?}");
    }

    #[test]
    fn any_values_can_be_drawn() {
        for value in [0.0, 1e-300, 1e29, 5.0] {
            let chart =
                scatter(LABELS, AxisUnit::Number, &[mark(0, "a", (value, value), (value, 0.0))]).0;
            assert!(chart.contains("<svg") && !chart.contains("NaN"), "{value}");
        }
        for marks in [vec![], vec![mark(0, "a", (f64::NAN, 0.0), (1.0, 0.0))]] {
            assert!(scatter(LABELS, AxisUnit::Number, &marks).0.contains("nothing recorded"));
        }
    }
}
