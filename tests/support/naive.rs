//! A glob matcher that is slow and plain, to compare ours with.

/// Whether the components of a pattern match those of a path.
pub fn naive_path(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**"], rest) => !rest.is_empty(),
        (["**", after @ ..], rest) => (0..=rest.len()).any(|skip| naive_path(after, &rest[skip..])),
        ([first, after @ ..], [name, rest @ ..]) => {
            let (first, name): (Vec<char>, Vec<char>) =
                (first.chars().collect(), name.chars().collect());
            naive_name(&first, &name) && naive_path(after, rest)
        }
        _ => false,
    }
}

/// Whether one component matches, each by its characters.
fn naive_name(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        (['*', after @ ..], rest) => (0..=rest.len()).any(|skip| naive_name(after, &rest[skip..])),
        (['?', after @ ..], [_, rest @ ..]) => naive_name(after, rest),
        (['[', inside @ ..], [c, rest @ ..]) => {
            let end = inside.iter().position(|c| *c == ']').unwrap();
            let (negated, set) = match &inside[..end] {
                ['!', set @ ..] => (true, set),
                set => (false, set),
            };
            let within = match set {
                [low, '-', high] => (low..=high).contains(&c),
                set => set.contains(c),
            };
            within != negated && naive_name(&inside[end + 1..], rest)
        }
        ([p, after @ ..], [c, rest @ ..]) => p == c && naive_name(after, rest),
        _ => false,
    }
}
