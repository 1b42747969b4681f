-- dp clause, unnest of a list
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) COUNT(*) AS n FROM professors WHERE item IN UNNEST(['pen', 'pencil']); -- duck: SELECT COUNT(*) AS n FROM professors WHERE item IN ('pen', 'pencil')
-- dp clause, max_groups and count per group
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=2, delta=1e-7, max_groups_contributed=3, privacy_unit_column=id) item, COUNT(*, contribution_bounds_per_group=>(0, 60)) AS n, SUM(quantity, contribution_bounds_per_group=>(0, 6000)) AS q FROM professors GROUP BY item ORDER BY item; -- duck: SELECT item, COUNT(*) AS n, SUM(quantity) AS q FROM professors GROUP BY item ORDER BY item
-- dp clause, public groups with left join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, group_selection_strategy=PUBLIC_GROUPS, privacy_unit_column=id, max_groups_contributed=4) item, AVG(quantity, contribution_bounds_per_row=>(0, 100)) AS q FROM professors RIGHT JOIN (SELECT DISTINCT item FROM items WHERE item <> 'stapler') USING (item) GROUP BY item; -- duck: SELECT item, AVG(quantity) AS q FROM professors GROUP BY item
-- dp clause, countif, logical_or
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, COUNTIF(quantity BETWEEN 10 AND 20) AS n FROM professors GROUP BY item; -- duck: SELECT item, COUNT(*) FILTER (WHERE quantity BETWEEN 10 AND 20) AS n FROM professors GROUP BY item
-- dp clause, timestamp parts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) EXTRACT(DAYOFWEEK FROM day) AS d, COUNT(*) AS n FROM professors GROUP BY d; -- duck: SELECT DAYOFWEEK(day) + 1 AS d, COUNT(*) AS n FROM professors GROUP BY d
-- dp clause, unit by alias of a join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=p.id) s.dept, AVG(p.quantity, contribution_bounds_per_row => (0, 100)) AS q FROM professors p INNER JOIN staff s ON p.id = s.id GROUP BY s.dept; -- duck: SELECT s.dept, AVG(p.quantity) AS q FROM professors p JOIN staff s ON p.id = s.id GROUP BY s.dept
-- dp clause, percentile_cont twice; approx
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) PERCENTILE_CONT(quantity, 0.25, contribution_bounds_per_row=>(0, 100)) AS low, PERCENTILE_CONT(quantity, 0.75, contribution_bounds_per_row=>(0, 100)) AS high FROM professors; -- duck: SELECT QUANTILE_CONT(quantity, 0.25), QUANTILE_CONT(quantity, 0.75) FROM professors
-- dp clause, concat and lower in group
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) LOWER(CONCAT('x-', item)) AS label, COUNT(*) AS n FROM professors GROUP BY label; -- duck: SELECT 'x-' || item AS label, COUNT(*) AS n FROM professors GROUP BY label
-- dp clause, with having min units
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, min_privacy_units_per_group=5, max_groups_contributed=3, privacy_unit_column=id) item, COUNT(DISTINCT id) AS people FROM professors GROUP BY item; -- duck: SELECT item, COUNT(DISTINCT id) AS people FROM professors GROUP BY item
-- dp clause, ifnull and safe_divide
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, SAFE_DIVIDE(COUNTIF(quantity > 50), COUNT(*)) AS share FROM professors GROUP BY item; -- duck: SELECT item, COUNT(*) FILTER (WHERE quantity > 50) / COUNT(*) AS share FROM professors GROUP BY item
-- dp clause, starts_with
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) COUNT(*) AS n FROM professors WHERE STARTS_WITH(item, 'pen') AND NOT ENDS_WITH(item, 'l'); -- duck: SELECT COUNT(*) AS n FROM professors WHERE starts_with(item, 'pen') AND NOT suffix(item, 'l')
-- dp clause, limit and order on noisy
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, SUM(quantity, contribution_bounds_per_row=>(0, 100)) AS q FROM professors GROUP BY item ORDER BY q DESC LIMIT 1; -- duck: SELECT item, SUM(quantity) AS q FROM professors GROUP BY item ORDER BY q DESC LIMIT 1
