-- dp clause, distinct unit, having on an alias
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, max_groups_contributed=3, privacy_unit_column=id) item, COUNT(DISTINCT id) AS people FROM professors GROUP BY item HAVING people > 10; -- duck: SELECT item, COUNT(DISTINCT id) AS people FROM professors GROUP BY item HAVING people > 10
-- anonymization clause
SELECT WITH ANONYMIZATION OPTIONS(epsilon=1, delta=1e-6, kappa=3) item, ANON_COUNT(*) AS n FROM professors GROUP BY item; -- duck: SELECT item, COUNT(*) AS n FROM professors GROUP BY item
-- dp clause, format_date
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) FORMAT_DATE('%Y-%m', day) AS month, COUNT(*) AS n FROM professors GROUP BY month; -- duck: SELECT STRFTIME(day, '%Y-%m') AS month, COUNT(*) AS n FROM professors GROUP BY month
-- dp clause, date_diff
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) SUM(DATE_DIFF(day, DATE '2024-11-01', DAY), contribution_bounds_per_row => (0, 100)) AS days FROM professors; -- duck: SELECT SUM(DATE_DIFF('day', DATE '2024-11-01', day)) AS days FROM professors
-- dp clause, cte of rows
WITH big AS (SELECT id, item, quantity FROM professors WHERE quantity > 20) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, AVG(quantity, contribution_bounds_per_row => (0, 100)) AS q FROM big GROUP BY item; -- duck: SELECT item, AVG(quantity) AS q FROM professors WHERE quantity > 20 GROUP BY item
-- dp clause, if
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) IF(quantity > 50, 'large', 'small') AS size, COUNT(*) AS n FROM professors GROUP BY size; -- duck: SELECT IF(quantity > 50, 'large', 'small') AS size, COUNT(*) AS n FROM professors GROUP BY size
-- dp clause, regexp_extract
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) REGEXP_EXTRACT(item, r'^[a-z]') AS letter, COUNT(*) AS n FROM professors GROUP BY letter; -- duck: SELECT REGEXP_EXTRACT(item, '^[a-z]') AS letter, COUNT(*) AS n FROM professors GROUP BY letter
-- dp clause, safe_cast
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) COUNT(SAFE_CAST(item AS INT64)) AS n FROM professors; -- duck: SELECT COUNT(TRY_CAST(item AS BIGINT)) AS n FROM professors
-- dp clause, date_add
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) COUNT(*) AS n FROM professors WHERE DATE_ADD(day, INTERVAL 7 DAY) < DATE '2025-01-01'; -- duck: SELECT COUNT(*) AS n FROM professors WHERE day + INTERVAL 7 DAY < DATE '2025-01-01'
-- dp clause, log of a column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, SUM(LN(quantity), contribution_bounds_per_row => (0, 5)) AS l FROM professors GROUP BY item; -- duck: SELECT item, SUM(LN(quantity)) AS l FROM professors GROUP BY item
-- dp clause, join on the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) dept, COUNT(*) AS n FROM professors JOIN staff USING (id) GROUP BY dept; -- duck: SELECT dept, COUNT(*) AS n FROM professors JOIN staff USING (id) GROUP BY dept
-- dp clause, quantiles by group; approx
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1, delta=1e-6, privacy_unit_column=id) item, APPROX_QUANTILES(quantity, 2, contribution_bounds_per_row => (0, 100))[OFFSET(1)] AS m FROM professors GROUP BY item; -- duck: SELECT item, MEDIAN(quantity) AS m FROM professors GROUP BY item
