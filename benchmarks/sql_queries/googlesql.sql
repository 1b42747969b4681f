-- dp clause, count
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, COUNT(*) AS n FROM professors GROUP BY item; -- duck: SELECT item, COUNT(*) AS n FROM professors GROUP BY item
-- dp clause, max_groups_contributed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, max_groups_contributed=4, privacy_unit_column=id) item, AVG(quantity, contribution_bounds_per_group => (0,100)) AS q FROM professors GROUP BY item; -- duck: SELECT item, AVG(m) FROM (SELECT item, id, AVG(quantity) AS m FROM professors GROUP BY ALL) GROUP BY item
-- dp clause, bounds per group on count
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, max_groups_contributed=4, privacy_unit_column=id) item, COUNT(*, contribution_bounds_per_group => (0, 50)) AS n FROM professors GROUP BY item; -- duck: SELECT item, COUNT(*) AS n FROM professors GROUP BY item
-- dp clause, bounds per row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, SUM(quantity, contribution_bounds_per_row => (0, 100)) AS s FROM professors GROUP BY item; -- duck: SELECT item, SUM(quantity) AS s FROM professors GROUP BY item
-- dp clause, bounds per row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, max_rows_contributed=50, privacy_unit_column=id) AVG(quantity, contribution_bounds_per_row => (0, 100)) AS a FROM professors; -- duck: SELECT AVG(quantity) AS a FROM professors
-- dp clause, bounds per row, quantiles; approx
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) PERCENTILE_CONT(quantity, 0.5, contribution_bounds_per_row => (0, 100)) AS m FROM professors; -- duck: SELECT MEDIAN(quantity) AS m FROM professors
-- dp clause, APPROX_QUANTILES; approx
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) APPROX_QUANTILES(quantity, 4, contribution_bounds_per_row => (0, 100))[OFFSET(2)] AS m FROM professors; -- duck: SELECT MEDIAN(quantity) AS m FROM professors
-- dp clause, group_selection_strategy
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, group_selection_strategy=LAPLACE_THRESHOLD, privacy_unit_column=id) item, COUNT(*) AS n FROM professors GROUP BY item; -- duck: SELECT item, COUNT(*) AS n FROM professors GROUP BY item
-- dp clause, min_privacy_units_per_group
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, min_privacy_units_per_group=3, privacy_unit_column=id) item, COUNT(*) AS n FROM professors GROUP BY item; -- duck: SELECT item, COUNT(*) AS n FROM professors GROUP BY item
-- dp clause, null option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, max_groups_contributed=NULL, privacy_unit_column=id) item, COUNT(*) AS n FROM professors GROUP BY item; -- duck: SELECT item, COUNT(*) AS n FROM professors GROUP BY item
-- dp clause, alias of the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=p.id) p.item, COUNT(*) AS n FROM professors AS p GROUP BY p.item; -- duck: SELECT item, COUNT(*) AS n FROM professors GROUP BY item
-- dp clause, alias of the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=who) item, COUNT(*) AS n FROM (SELECT id AS who, item FROM professors) GROUP BY item; -- duck: SELECT item, COUNT(*) AS n FROM professors GROUP BY item
-- dp clause, public groups
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, group_selection_strategy=PUBLIC_GROUPS, privacy_unit_column=id) item, COUNT(id) AS n FROM professors RIGHT OUTER JOIN (SELECT DISTINCT item FROM items) USING (item) GROUP BY item; -- duck: SELECT item, COUNT(id) AS n FROM professors RIGHT JOIN (SELECT DISTINCT item FROM items) USING (item) GROUP BY item
-- dp clause, no options of the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6) COUNT(DISTINCT id) AS n FROM professors; -- duck: SELECT COUNT(DISTINCT id) AS n FROM professors
-- dp clause, having
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6) item, COUNT(*) AS n FROM professors GROUP BY item HAVING COUNT(*) > 100 ORDER BY item; -- duck: SELECT item, COUNT(*) AS n FROM professors GROUP BY item HAVING COUNT(*) > 100 ORDER BY item
-- dp clause, outer select over released
SELECT item, n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, COUNT(*) AS n FROM professors GROUP BY item) WHERE n > 100 ORDER BY n DESC; -- duck: SELECT item, COUNT(*) AS n FROM professors GROUP BY item HAVING COUNT(*) > 100 ORDER BY n DESC
-- dp clause, cte of released
WITH counts AS (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, COUNT(*) AS n FROM professors GROUP BY item) SELECT SUM(n) AS total FROM counts; -- duck: SELECT COUNT(*) FROM professors
-- dp clause, variance
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, VAR_POP(quantity, contribution_bounds_per_row => (0, 100)) AS v, STDDEV_POP(quantity, contribution_bounds_per_row => (0, 100)) AS s FROM professors GROUP BY item; -- duck: SELECT item, VAR_POP(quantity), STDDEV_POP(quantity) FROM professors GROUP BY item
-- dp clause, functions on outputs
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) UPPER(item) AS label, CAST(COUNT(*) AS INT64) AS n FROM professors GROUP BY item; -- duck: SELECT UPPER(item), COUNT(*) AS n FROM professors GROUP BY item
-- dp clause, SAFE functions
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) SAFE_DIVIDE(SUM(quantity, contribution_bounds_per_row => (0, 100)), COUNT(*)) AS r FROM professors; -- duck: SELECT SUM(quantity) / COUNT(*) AS r FROM professors
-- dp clause, COUNTIF
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) COUNTIF(quantity > 50) AS n FROM professors; -- duck: SELECT COUNT(*) FROM professors WHERE quantity > 50
-- dp clause, date parts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) EXTRACT(YEAR FROM day) AS y, COUNT(*) AS n FROM professors GROUP BY y; -- duck: SELECT YEAR(day) AS y, COUNT(*) AS n FROM professors GROUP BY y
-- dp clause, date trunc
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) DATE_TRUNC(day, MONTH) AS m, COUNT(*) AS n FROM professors GROUP BY m; -- duck: SELECT DATE_TRUNC('month', day) AS m, COUNT(*) AS n FROM professors GROUP BY m
-- dp clause, join on the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) s.dept, COUNT(*) AS n FROM professors JOIN staff AS s USING (id) GROUP BY s.dept; -- duck: SELECT s.dept, COUNT(*) AS n FROM professors JOIN staff AS s USING (id) GROUP BY s.dept
-- dp clause, in subquery on the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) COUNT(*) AS n FROM professors WHERE id IN (SELECT id FROM staff WHERE dept = 'math'); -- duck: SELECT COUNT(*) AS n FROM professors WHERE id IN (SELECT id FROM staff WHERE dept = 'math')
-- dp clause, union all of rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) COUNT(*) AS n FROM (SELECT id, item FROM professors UNION ALL SELECT id, dept FROM staff); -- duck: SELECT (SELECT COUNT(*) FROM professors) + (SELECT COUNT(*) FROM staff)
-- dp clause, select distinct in subquery
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, COUNT(*) AS n FROM (SELECT DISTINCT id, item FROM professors) GROUP BY item; -- duck: SELECT item, COUNT(DISTINCT id) AS n FROM professors GROUP BY item
-- dp clause, max_rows_contributed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, max_rows_contributed=50, privacy_unit_column=id) COUNT(*) AS n FROM professors; -- duck: SELECT COUNT(*) FROM professors
-- dp clause, rollup
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, COUNT(*) AS n FROM professors GROUP BY ROLLUP(item); -- duck: SELECT item, COUNT(*) AS n FROM professors GROUP BY ROLLUP(item)
-- dp clause, if
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) IF(quantity > 50, 'many', 'few') AS q, COUNT(*) AS n FROM professors GROUP BY q; -- duck: SELECT CASE WHEN quantity > 50 THEN 'many' ELSE 'few' END AS q, COUNT(*) AS n FROM professors GROUP BY q
-- dp clause, regexp
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) COUNT(*) AS n FROM professors WHERE REGEXP_CONTAINS(item, 'pen'); -- duck: SELECT COUNT(*) FROM professors WHERE item LIKE '%pen%'
-- dp clause, window over released
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM professors GROUP BY item; -- duck: SELECT item, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM professors GROUP BY item
-- dp clause, count distinct of a column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) COUNT(DISTINCT item) AS n FROM professors; -- duck: SELECT COUNT(DISTINCT item) FROM professors
-- dp clause, approx_count_distinct
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) APPROX_COUNT_DISTINCT(item) AS n FROM professors; -- duck: SELECT COUNT(DISTINCT item) FROM professors
-- dp clause, logarithm
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) AVG(LN(quantity), contribution_bounds_per_row => (0, 5)) AS l FROM professors; -- duck: SELECT AVG(LN(quantity)) FROM professors
-- dp clause, backticks
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) COUNT(*) AS n FROM `project.data.professors`; -- duck: SELECT COUNT(*) FROM professors
-- dp clause, filter in where
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, SUM(quantity, contribution_bounds_per_group => (0, 5000)) AS s FROM professors WHERE quantity > 10 GROUP BY item; -- duck: SELECT item, SUM(quantity) FROM professors WHERE quantity > 10 GROUP BY item
-- anon style; refuse
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item FROM professors WHERE RAND() < 0.5;
-- another unit; refuse
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=item) COUNT(*) AS n FROM professors;
-- unknown option; refuse
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, noise='none') COUNT(*) AS n FROM professors;
-- string_agg; refuse
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) STRING_AGG(item) AS s FROM professors;
-- rows; refuse
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) id, item FROM professors;
