-- count of a flag, arithmetic on outputs
SELECT SUM(married) * 1.0 / COUNT(*) AS share FROM PUMS.PUMS;
-- group by expression, having on sum
SELECT educ % 2 AS odd, SUM(income) AS s FROM PUMS.PUMS GROUP BY educ % 2 HAVING SUM(income) > 0;
-- var_pop, stddev_samp
SELECT sex, VAR_POP(age) AS vp, STDDEV_SAMP(age) AS ss, VAR_SAMP(income) AS vs FROM PUMS.PUMS GROUP BY sex;
-- nested sub-queries without alias
SELECT sex, COUNT(*) AS n FROM (SELECT * FROM (SELECT * FROM PUMS.PUMS WHERE age < 65)) GROUP BY sex;
-- order by output expression
SELECT race, AVG(income) AS m FROM PUMS.PUMS GROUP BY race ORDER BY AVG(income) DESC;
-- integer cast of a column
SELECT CAST(age / 10 AS INTEGER) AS decade, COUNT(*) AS n FROM PUMS.PUMS GROUP BY CAST(age / 10 AS INTEGER);
-- case in sum, filter in where
SELECT SUM(CASE WHEN sex = 1 AND married = 0 THEN income ELSE 0 END) AS s FROM PUMS.PUMS WHERE educ >= 3;
-- simple case
SELECT CASE sex WHEN 0 THEN 'f' WHEN 1 THEN 'm' ELSE 'x' END AS g, COUNT(*) AS n FROM PUMS.PUMS GROUP BY 1;
-- select distinct of two keys
SELECT DISTINCT sex, married FROM PUMS.PUMS ORDER BY sex, married;
-- duplicate output names
SELECT AVG(age) AS a, AVG(income) AS a FROM PUMS.PUMS;
-- outer aggregate over inner grouped, where on it
SELECT sex, SUM(n) AS total FROM (SELECT sex, educ, COUNT(*) AS n FROM PUMS.PUMS GROUP BY sex, educ) AS t WHERE educ > 2 GROUP BY sex;
-- correlation
SELECT CORR(age, income) AS c, COVAR_SAMP(age, income) AS v FROM PUMS.PUMS;
-- regression slope
SELECT REGR_SLOPE(income, age) AS slope FROM PUMS.PUMS;
-- width_bucket
SELECT WIDTH_BUCKET(age, 0, 100, 10) AS bucket, COUNT(*) AS n FROM PUMS.PUMS GROUP BY bucket; -- duck: SELECT CAST(FLOOR(age / 10) + 1 AS INTEGER) AS bucket, COUNT(*) AS n FROM PUMS GROUP BY bucket
-- is null on group and coalesce on output
SELECT race, COALESCE(AVG(income), 0) AS m FROM PUMS.PUMS WHERE race IS NOT NULL GROUP BY race;
-- grouping with a window rank and qualify
SELECT educ, AVG(income) AS m FROM PUMS.PUMS GROUP BY educ QUALIFY ROW_NUMBER() OVER (ORDER BY AVG(income) DESC) <= 2;
-- median by group; approx
SELECT sex, MEDIAN(income) AS m FROM PUMS.PUMS GROUP BY sex;
-- singletons; refuse
SELECT age, income, COUNT(*) AS n FROM PUMS.PUMS WHERE pid IN (1, 2) GROUP BY pid, age, income;
